//! A small disk in memory, which can be filled to its last byte or made read-only.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of its own; it is unmounted when this is dropped.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts one at `path` with `options`, such as `size=8m,ro`; `None` if this process has no right to.
    pub fn mount(path: &Path, options: &str) -> Option<SmallDisk> {
        if !rustix::process::geteuid().is_root() {
            // This is skipped even under CI=true: only root has the right.
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

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the mount options: `ro`, `rw`, `size=16m`.
    #[track_caller]
    pub fn remount(&self, options: &str) {
        mount(&["-o", &format!("remount,{options}")], &self.path).expect("to remount");
    }

    /// Fills the disk to the last byte.
    pub fn fill(&self) {
        let mut file = File::create(self.filler()).expect("a file");
        while file.write_all(&[7; 4096]).is_ok() {}
    }

    /// Undoes [`SmallDisk::fill`].
    pub fn make_room(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, as files on it may still be open.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn mount(arguments: &[&str], path: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(arguments).arg(path).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    output.status.success().then_some(()).ok_or_else(said)
}
