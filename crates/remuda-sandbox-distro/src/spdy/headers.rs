//! Header blocks: compressed together, all of one direction, beginning with a dictionary both sides know.

use std::{io, sync::LazyLock};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::SpdyError;

/// Bytes of a block when it is no longer compressed.
const LARGEST: usize = 32 << 10;
const MOST: usize = 100;

/// Words of the dictionary, each after its length.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host \
    if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
/// The rest of it.
const TEXT: &str = "10010120120220520630030230330430530630740240540640740840941041141241341441541641750250450520\
    3 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
    404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug \
    Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=\
    utf-8charset=iso-8859-1,utf-,*,enq=0.";

static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dictionary = Vec::new();
    for word in WORDS.split_whitespace() {
        let word = word.replace('_', " ");
        dictionary.extend_from_slice(&(word.len() as u32).to_be_bytes());
        dictionary.extend_from_slice(word.as_bytes());
    }
    dictionary.extend_from_slice(TEXT.as_bytes());
    dictionary
});

/// Reads blocks.
pub(super) struct Inflater(Decompress);

impl Default for Inflater {
    fn default() -> Self {
        Inflater(Decompress::new(true))
    }
}

impl Inflater {
    pub(super) fn read(&mut self, block: &[u8]) -> Result<Vec<(String, String)>, SpdyError> {
        parse(&self.inflate(block)?).ok_or(SpdyError::Protocol("headers that are cut off"))
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let bad = SpdyError::Protocol("headers that cannot be decompressed");
        let mut plain = vec![0; LARGEST];
        let mut length = 0;
        while !block.is_empty() {
            let (read, written) = (self.0.total_in(), self.0.total_out());
            let result = self.0.decompress(block, &mut plain[length..], FlushDecompress::Sync);
            let read = (self.0.total_in() - read) as usize;
            length += (self.0.total_out() - written) as usize;
            block = block.get(read..).unwrap_or_default();
            match result {
                Err(error) if error.needs_dictionary().is_some() => {
                    if self.0.set_dictionary(&DICTIONARY).is_err() {
                        return Err(bad);
                    }
                }
                Err(_) => return Err(bad),
                Ok(_) if length == LARGEST => return Err(SpdyError::Protocol("headers that are too long")),
                Ok(_) if read == 0 => return Err(bad),
                Ok(_) => {}
            }
        }
        plain.truncate(length);
        Ok(plain)
    }
}

/// Names and values of a block. `None` if it is cut off or has too many.
fn parse(mut plain: &[u8]) -> Option<Vec<(String, String)>> {
    fn number(plain: &mut &[u8]) -> Option<usize> {
        let (number, rest) = plain.split_first_chunk::<4>()?;
        *plain = rest;
        Some(u32::from_be_bytes(*number) as usize)
    }
    fn text(plain: &mut &[u8]) -> Option<String> {
        let length = number(plain)?;
        let (text, rest) = plain.split_at_checked(length)?;
        *plain = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
    let count = number(&mut plain)?;
    if count > MOST {
        return None;
    }
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        let name = text(&mut plain)?.to_ascii_lowercase();
        headers.push((name, text(&mut plain)?));
    }
    Some(headers)
}

/// Writes blocks.
pub(super) struct Deflater(Option<Compress>);

impl Default for Deflater {
    fn default() -> Self {
        let mut compress = Compress::new(Compression::fast(), true);
        Deflater(compress.set_dictionary(&DICTIONARY).is_ok().then_some(compress))
    }
}

impl Deflater {
    /// A block without headers: ours have nothing to say.
    pub(super) fn empty(&mut self) -> Result<Vec<u8>, SpdyError> {
        self.block(&[])
    }

    fn block(&mut self, headers: &[(&str, &str)]) -> Result<Vec<u8>, SpdyError> {
        let broken = || io::Error::other("headers cannot be compressed");
        let mut plain = (headers.len() as u32).to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend_from_slice(&(text.len() as u32).to_be_bytes());
            plain.extend_from_slice(text.as_bytes());
        }
        let compress = self.0.as_mut().ok_or_else(broken)?;
        // Room for what cannot be made shorter, so that one call is enough.
        let mut block = Vec::with_capacity(plain.len() + plain.len() / 8 + 128);
        compress.compress_vec(&plain, &mut block, FlushCompress::Sync).map_err(|_| broken())?;
        Ok(block)
    }
}

#[cfg(test)]
impl Deflater {
    pub(super) fn headers(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        self.block(headers).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        let (mut low, mut high) = (1u32, 0u32);
        for byte in DICTIONARY.iter() {
            low = (low + u32::from(*byte)) % 65521;
            high = (high + low) % 65521;
        }
        assert_eq!((DICTIONARY.len(), high << 16 | low), (1423, 0xe3c6_a7c2));
    }

    #[test]
    fn blocks_are_read_in_their_order() {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        for port in ["80", "81", "82"] {
            let block = deflater.headers(&[("StreamType", "data"), ("port", port)]);
            let expected =
                vec![("streamtype".to_owned(), "data".to_owned()), ("port".to_owned(), port.to_owned())];
            assert_eq!(inflater.read(&block).unwrap(), expected);
        }
    }

    #[test]
    fn a_block_that_grows_too_large_is_refused() {
        let value = "x".repeat(LARGEST);
        let block = Deflater::default().headers(&[("a", &value)]);
        assert!(block.len() < 1000);
        assert!(Inflater::default().read(&block).is_err());
    }
}
