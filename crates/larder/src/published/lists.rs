//! [`Lists`]: the lists that clients download whole, such as `packages.gz` and `packages.zst`, made of a snapshot.

use std::sync::OnceLock;

use aur::{Compressed, List, Snapshot};
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// The lists of one snapshot. Each is made when somebody first asks for it, by one thread however many ask.
#[derive(Default)]
pub struct Lists {
    made: [[OnceLock<MadeList>; List::ALL.len()]; Compressed::ALL.len()],
}

/// A list, ready to be sent.
pub(crate) struct MadeList {
    /// Its bytes, compressed.
    pub(crate) body: Bytes,
    /// Their digest, in hexadecimal.
    pub(crate) sha256: String,
}

impl Lists {
    /// A list that was made before.
    pub(crate) fn at_hand(&self, list: List, compressed: Compressed) -> Option<&MadeList> {
        self.made[compressed as usize][list as usize].get()
    }

    /// A list of `snapshot`, which must be the same each time.
    pub(crate) fn get(&self, snapshot: &Snapshot, list: List, compressed: Compressed) -> &MadeList {
        self.made[compressed as usize][list as usize].get_or_init(|| {
            let body = snapshot.list(list, compressed);
            let sha256 = hex::encode(Sha256::digest(&body));
            MadeList { body: body.into(), sha256 }
        })
    }
}
