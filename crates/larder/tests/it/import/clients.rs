//! `larder use`: the files of pip, uv, twine and Poetry are told of an index.

use super::*;

#[test]
fn clients_are_told_of_an_index() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    exported(directory.path());
    let place = Place(directory.path());
    place.run("import-devpi export");
    let server = serve(directory.clone());
    let url = format!("http://{}/alice/dev", server.client.address);
    let home = directory.path();
    let tell = |words: &[&str], input: &str| {
        let words = [&["use", &url][..], words].concat();
        let mut command = crate::process::larder(home);
        command.args(words).env("HOME", home).stdin(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("piped");
        let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let read = |name: &str| fs::read_to_string(home.join(name)).unwrap_or_default();
    let mode = |name: &str| fs::metadata(home.join(name)).expect(name).permissions().mode() & 0o777;

    let pip = ".config/pip/pip.conf";
    fs::create_dir_all(home.join(".config/pip")).expect("a directory");
    fs::write(home.join(pip), "# mine\n[global]\ntimeout = 9\n").expect("a file");
    fs::set_permissions(home.join(pip), fs::Permissions::from_mode(0o644)).expect("a mode");

    let (code, said, _) = tell(&["--pip", "--only", "--dry-run"], "");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing was written") && said.contains("+ index-url = "), "{said}");
    assert_eq!(read(pip), "# mine\n[global]\ntimeout = 9\n");

    let (code, said, complaint) = tell(&["--all", "--user", "alice", "--password-stdin"], "no\n");
    assert_eq!(code, Some(1), "{said}");
    assert!(complaint.contains("does not accept this user"), "{complaint}");
    assert!(!home.join(".pypirc").exists(), "nothing is written before that is known");

    let (code, said, complaint) =
        tell(&["--all", "--only", "--user", "alice", "--password-stdin"], "alice-secret\n");
    assert_eq!(code, Some(0), "{said}{complaint}");
    assert!(!said.contains("alice-secret"), "{said}");
    assert!(said.contains("pip.conf.bak'") && said.contains("rm '"), "{said}");
    let with_user = url.replace("http://", "http://alice:alice-secret@");
    assert_eq!(
        read(pip),
        format!("# mine\n[global]\ntimeout = 9\nindex-url = {with_user}/+simple/\n")
    );
    assert_eq!(read(".config/pip/pip.conf.bak"), "# mine\n[global]\ntimeout = 9\n");
    assert_eq!(
        read(".config/uv/uv.toml"),
        format!(
            "[[index]]\nname = \"alice-dev\"\nurl = \"{with_user}/+simple/\"\n\
             publish-url = \"{with_user}/\"\ndefault = true\n"
        )
    );
    assert_eq!(
        read(".pypirc"),
        format!(
            "[distutils]\nindex-servers =\n    pypi\n    testpypi\n    alice-dev\n\n[alice-dev]\n\
             repository = {url}/\nusername = alice\npassword = alice-secret\n"
        )
    );
    assert_eq!(
        read(".config/pypoetry/config.toml"),
        format!("[repositories.alice-dev]\nurl = \"{url}/\"\n")
    );
    assert_eq!(
        read(".config/pypoetry/auth.toml"),
        "[http-basic.alice-dev]\nusername = \"alice\"\npassword = \"alice-secret\"\n"
    );
    for name in [pip, ".config/uv/uv.toml", ".pypirc", ".config/pypoetry/auth.toml"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }

    let (code, said, _) =
        tell(&["--all", "--only", "--user", "alice", "--password-stdin"], "alice-secret\n");
    assert_eq!((code, said.matches("nothing to change").count()), (Some(0), 5), "{said}");
    assert!(!home.join(".config/pip/pip.conf.bak.1").exists());

    assert!(
        complaint.contains("warning: the public index is replaced: packages that"),
        "{complaint}"
    );

    let (code, said, complaint) = tell(&["--uv", "--dir", "here"], "");
    assert_eq!(code, Some(0), "{said}");
    assert!(!complaint.contains("warning"), "{complaint}");
    assert!(said.contains("yourproject = { index = \"alice-dev\" }"), "{said}");
    assert!(read("here/uv.toml").contains("explicit = true"), "{}", read("here/uv.toml"));
    assert!(said.contains("export UV_CONFIG_FILE="), "{said}");
    assert!(read("here/uv.toml").contains(&format!("url = \"{url}/+simple/\"")));

    let (code, said, _) = tell(&["--pip", "--dir", "pips"], "");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("--no-deps NAME==VERSION") && said.contains("add --only"), "{said}");
    assert!(!home.join("pips").exists(), "pip has no way to be told of an index beside another");

    fs::create_dir(home.join("app")).expect("a directory");
    fs::write(home.join("app/pyproject.toml"), "[project]\nname = \"app\"\n").expect("a file");
    let words = ["--uv", "--poetry", "--project", "app", "--user", "alice", "--password-stdin"];
    let (code, said, complaint) = tell(&words, "alice-secret\n");
    assert_eq!(code, Some(0), "{said}{complaint}");
    let project = read("app/pyproject.toml");
    assert!(project.starts_with("[project]\nname = \"app\"\n"), "{project}");
    assert!(
        project.contains("explicit = true") && project.contains("priority = \"explicit\""),
        "{project}"
    );
    assert!(!project.contains("alice-secret"), "others read it: {project}");
    let (code, _, complaint) = tell(&["--uv", "--project", "none.toml"], "");
    assert_eq!((code, complaint.contains("`none.toml`")), (Some(2), true), "{complaint}");

    let (code, _, complaint) = tell(&["--pip", "--user", "alice"], "");
    assert_eq!(code, Some(2), "{complaint}");
    let elsewhere = url.replace("/alice/dev", "/alice/none");
    let mut command = crate::process::larder(home);
    let output = command.args(["use", &elsewhere, "--pip"]).output().expect("it runs");
    let complaint = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("The stage alice/none could not be found."), "{complaint}");
}
