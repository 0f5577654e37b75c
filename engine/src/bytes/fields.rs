//! Fields of a frame, in either protocol. Each field must end within its frame, and memory is allocated only for bytes that
//! have come.
//!
//! Pure. Numbers are little-endian. A frame is its length, a byte for its kind, and fields up to its end; `frame` cuts a
//! stream into frames.

/// Why bytes are not a valid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

type Result<T> = std::result::Result<T, Malformed>;

/// The rest of a frame, which has not been read yet.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.0.len() {
            return Err(Malformed("a field is longer than its frame"));
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn text(&mut self) -> Result<&'a [u8]> {
        let n = self.u32()? as usize;
        self.take(n)
    }

    /// The one of these whose number comes next.
    pub fn one_of<T: Copy>(&mut self, all: &[T], number: fn(T) -> u8, unknown: &'static str) -> Result<T> {
        let found = self.u8()?;
        let one = all.iter().find(|one| number(**one) == found);
        one.copied().ok_or(Malformed(unknown))
    }

    /// The lowest and the highest version that a greeting offers.
    pub fn versions(&mut self, magic: &[u8]) -> Result<(u16, u16)> {
        if self.take(magic.len())? != magic {
            return Err(Malformed("not a greeting"));
        }
        Ok((self.u16()?, self.u16()?))
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub fn end(self) -> Result<()> {
        match self.0 {
            [] => Ok(()),
            _ => Err(Malformed("bytes after the last field")),
        }
    }
}

/// The length and the kind of a frame in which so many bytes follow.
pub fn put_head(out: &mut Vec<u8>, kind: u8, size: usize) {
    out.extend((size as u32 + 1).to_le_bytes());
    out.push(kind);
}

/// Appends one frame: the kind, then what `body` writes.
pub fn put_frame(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put_head(out, kind, 0);
    body(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Appends a frame whose body begins with a number: that of a request, mostly.
pub fn put_numbered(out: &mut Vec<u8>, kind: u8, number: u32, body: impl FnOnce(&mut Vec<u8>)) {
    put_frame(out, kind, |out| {
        out.extend(number.to_le_bytes());
        body(out);
    });
}

pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text);
}
