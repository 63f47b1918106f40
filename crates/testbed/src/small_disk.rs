//! A small disk in memory, which can be filled to its last byte or made read-only.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of its own, for as long as this lives.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts one at `path` with `options`, as in `size=8m,ro`; none where this process may not.
    pub fn mount(path: &Path, options: &str) -> Option<SmallDisk> {
        if !rustix::process::geteuid().is_root() {
            // Not even under CI=true: only root has the right.
            let _ = writeln!(io::stderr(), "skipped: only root can mount a small disk");
            return None;
        }
        fs::create_dir_all(path).expect("a directory");
        let mounted = mount(&["-t", "tmpfs", "-o", options, "larder-test"], path);
        match mounted {
            Ok(()) => Some(SmallDisk { path: path.to_owned() }),
            Err(error) => {
                crate::skipped(&format!("a small disk cannot be mounted: {error}"));
                None
            }
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes its options: `ro`, `rw`, `size=16m`.
    #[track_caller]
    pub fn remount(&self, options: &str) {
        mount(&["-o", &format!("remount,{options}")], &self.path).expect("to remount");
    }

    /// Fills it to the last byte.
    pub fn fill(&self) {
        let mut file = File::create(self.filler()).expect("a file");
        while file.write_all(&[7; 4096]).is_ok() {}
    }

    /// Takes [`SmallDisk::fill`] back.
    pub fn make_room(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: somebody may still have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn mount(arguments: &[&str], path: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(arguments).arg(path).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    output.status.success().then_some(()).ok_or_else(said)
}
