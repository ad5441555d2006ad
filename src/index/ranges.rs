//! A file on a server that is read in parts, as if it were here.

use std::io::{self, Read, Seek, SeekFrom};

use url::Url;

use super::client::Client;
use super::error::IndexError;

/// The list of the files in a wheel is at its end, and torch's has 1.1 MiB.
const TAIL: u64 = 3 << 19;
/// What is read at once elsewhere.
const BLOCK: u64 = 64 << 10;

/// A file on a server. Its end is read at once, everything else when it is wanted.
pub(super) struct RemoteFile<'a> {
    client: &'a Client,
    url: &'a Url,
    size: u64,
    position: u64,
    tail: Block,
    block: Block,
}

#[derive(Default)]
struct Block {
    start: u64,
    bytes: Vec<u8>,
}

impl Block {
    fn from(&self, position: u64) -> &[u8] {
        let skipped = position.checked_sub(self.start).and_then(|skipped| usize::try_from(skipped).ok());
        skipped.and_then(|skipped| self.bytes.get(skipped..)).unwrap_or_default()
    }
}

impl<'a> RemoteFile<'a> {
    /// The file, if the server gives parts of files.
    pub(super) fn open(client: &'a Client, url: &'a Url) -> Result<Option<Self>, IndexError> {
        let Some(tail) = client.part(url, &format!("bytes=-{TAIL}"))? else { return Ok(None) };
        Ok(Some(Self {
            client,
            url,
            size: tail.whole,
            position: 0,
            tail: Block { start: tail.start, bytes: tail.bytes },
            block: Block::default(),
        }))
    }

    /// Reads the part that begins at the position.
    fn fetch(&mut self) -> io::Result<()> {
        let last = (self.position + BLOCK).min(self.size) - 1;
        let range = format!("bytes={}-{last}", self.position);
        let part = self.client.part(self.url, &range).map_err(io::Error::other)?;
        match part {
            Some(part) if part.start == self.position && !part.bytes.is_empty() => {
                self.block = Block { start: part.start, bytes: part.bytes };
                Ok(())
            }
            _ => Err(io::Error::other("the server gave another part of the file than it was asked for")),
        }
    }
}

impl Read for RemoteFile<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.size || into.is_empty() {
            return Ok(0);
        }
        if self.tail.from(self.position).is_empty() && self.block.from(self.position).is_empty() {
            self.fetch()?;
        }
        let tail = self.tail.from(self.position);
        let here = if tail.is_empty() { self.block.from(self.position) } else { tail };
        let count = here.len().min(into.len());
        into[..count].copy_from_slice(&here[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for RemoteFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let wanted = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = wanted.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
