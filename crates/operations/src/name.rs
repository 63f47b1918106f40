//! [`Name`]: the list of all operations.

macro_rules! names {
    ($($name:ident,)*) => {
        /// Every operation. The test of rights has a case for each, and does not compile without.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "each is the name of a struct, which says what it does")]
        pub enum Name {
            $($name,)*
        }

        impl Name {
            /// All of them.
            pub const ALL: &[Name] = &[$(Name::$name,)*];
        }
    };
}

names! {
    AnnounceText,
    WriteArticle,
    DeleteArticle,
    RestoreArticle,
    RenameArticle,
    AnnounceAttachment,
    PutAttachment,
    RemoveAttachment,
    CreateIndex,
    ChangeIndex,
    DeleteIndex,
    SweepLeftovers,
    PushRelease,
    ApproveRelease,
    YankRelease,
    YankFile,
    SetProjectStatus,
    DeleteProject,
    DeleteRelease,
    DeleteFile,
    RemoveOldVersions,
    OpenSession,
    CloseSession,
    CreateToken,
    RevokeToken,
    RegisterRelease,
    UploadFile,
    AddToxResult,
    CreateUser,
    ChangeUser,
    SetPassword,
    SetGroups,
    SetDisabled,
    DeleteUser,
}
