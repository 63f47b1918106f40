//! The bytes of one answer while they are written, from the start to the end.

/// Bytes so far, and room behind them that has been written before: it is not cleared again for each
/// record, which would cost as much as the record itself.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    bytes: Vec<u8>,
    /// Where the room begins.
    end: usize,
}

impl Sheet {
    /// A sheet for about so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Sheet {
        let mut sheet = Sheet { bytes: Vec::with_capacity(bytes), end: 0 };
        sheet.room(bytes.min(128));
        sheet
    }

    /// Appends `bytes`.
    #[inline(always)]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Room for at least so many bytes behind the end; what it holds has no meaning. Whoever writes from its
    /// start on says how much with [`Sheet::written`].
    #[inline]
    pub(crate) fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < bytes {
            self.grow(bytes);
        }
        &mut self.bytes[self.end..]
    }

    #[inline(never)]
    fn grow(&mut self, bytes: usize) {
        self.bytes.resize(self.end + bytes, 0);
    }

    /// Moves the end behind the first `bytes` of its room.
    #[inline]
    pub(crate) fn written(&mut self, bytes: usize) {
        self.end += bytes;
        debug_assert!(self.end <= self.bytes.len(), "more was written than there was room");
    }

    /// Takes back the last byte, if there is one.
    pub(crate) fn pop(&mut self) {
        self.end = self.end.saturating_sub(1);
    }

    /// Begins again at the start.
    pub(crate) fn clear(&mut self) {
        self.end = 0;
    }

    /// The bytes so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// The bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.truncate(self.end);
        self.bytes
    }
}
