//! [`Name`]: the list of all operations.

/// The enum, with the list of its variants.
macro_rules! with_all {
    ($(#[$attribute:meta])* pub enum $Enum:ident { $($name:ident,)* }) => {
        $(#[$attribute])*
        pub enum $Enum {
            $($name,)*
        }

        impl $Enum {
            /// All of them.
            pub const ALL: &[$Enum] = &[$($Enum::$name,)*];
        }
    };
}

with_all! {
    /// Every operation. The test of rights has a case for each, and does not compile without.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[expect(missing_docs, reason = "each is the name of a struct, which says what it does")]
    pub enum Name {
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
        ImportRecords,
        PushRelease,
        ApproveRelease,
        YankRelease,
        YankFile,
        SetProjectStatus,
        DeleteProject,
        DeleteRelease,
        DeleteFile,
        RemoveOldVersions,
        NoteLogIn,
        OpenSession,
        OpenSessionByProvider,
        CloseSession,
        LinkIdentity,
        UnlinkIdentity,
        CreateToken,
        RevokeToken,
        RevokeFoundToken,
        NoteTokenUses,
        MintUploadToken,
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
}
