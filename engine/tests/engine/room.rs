//! The protocol of `docs/room.md`: values survive encoding and decoding, and no bytes make a decoder panic or allocate
//! much.

use wafengine::bytes::digest::Digest;
use wafengine::bytes::frame::Inbox;
use wafengine::room::{
    Begun, Bits, Coding, Content, Failure, Hello, NotKept, Refusal, Reply, Request, Rights, FRAME_CAP, MOST_DIGESTS,
    PIECE,
};

fn digest(name: &str) -> Digest {
    Digest::of(name.as_bytes())
}

fn begun(first: &[u8]) -> Begun<'_> {
    Begun {
        digest: digest("a blob"),
        coding: Coding::Zstd,
        size: 1 << 40,
        first,
    }
}

/// One request of each kind, with all kinds of fields.
fn requests() -> Vec<Request<'static>> {
    let digests = vec![digest("one"), digest("two")];
    vec![
        Request::Hello(Hello {
            lowest: 1,
            highest: 7,
            token: b"a secret",
            namespace: b"",
            name: b"ci",
        }),
        Request::Find {
            id: 1,
            inline: 65536,
            keys: digests.clone(),
        },
        Request::Get {
            id: 2,
            digests: digests.clone(),
        },
        Request::Has {
            id: u32::MAX,
            digests: vec![],
        },
        Request::Blob {
            id: 4,
            begun: begun(b"first"),
        },
        Request::Data { id: 4, bytes: b"then" },
        Request::Entry {
            id: 5,
            key: digest("key"),
            needs: digests,
            bytes: b"facts",
        },
        Request::Ping { id: 6 },
        Request::Abandon { id: 7 },
    ]
}

fn replies() -> Vec<Reply<'static>> {
    let content = |bytes| Content {
        digest: Digest::of(bytes),
        coding: Coding::Plain,
        bytes,
    };
    vec![
        Reply::Welcome {
            version: 1,
            rights: Rights {
                read: true,
                write: false,
            },
            largest: 1 << 33,
            name: b"team",
        },
        Reply::Refused {
            why: Refusal::Token,
            words: b"no such token",
        },
        Reply::Found {
            id: 1,
            number: 4095,
            entry: b"facts",
            contents: vec![content(b"x"), content(b"")],
        },
        Reply::End { id: 1 },
        Reply::Blob {
            id: 2,
            begun: begun(b""),
        },
        Reply::Data { id: 2, bytes: b"more" },
        Reply::Missing {
            id: 2,
            digest: digest("gone"),
        },
        Reply::Held {
            id: 3,
            bits: [true, false, true, true, false, false, false, false, true]
                .into_iter()
                .collect(),
        },
        Reply::Kept { id: 4 },
        Reply::NotKept {
            id: 5,
            why: NotKept::Lacks,
            words: b"no blob",
        },
        Reply::Pong { id: 6 },
        Reply::Failed {
            id: 7,
            how: Failure::Silent,
            words: b"no answer",
        },
    ]
}

/// All frames, without their lengths.
fn bodies() -> Vec<Vec<u8>> {
    let encode = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        out.split_off(4)
    };
    let requests = requests();
    let replies = replies();
    let requests = requests.iter().map(|request| encode(&|out| request.encode(out)));
    requests
        .chain(replies.iter().map(|reply| encode(&|out| reply.encode(out))))
        .collect()
}

#[test]
fn requests_come_back_as_they_were() {
    let mut stream = Vec::new();
    requests().iter().for_each(|request| request.encode(&mut stream));
    let mut inbox = Inbox::new(FRAME_CAP);
    inbox.push(&stream);
    for expected in requests() {
        let frame = inbox.take().unwrap().unwrap();
        assert_eq!(Request::decode(frame), Ok(expected));
    }
    assert!(!inbox.is_partial());
}

#[test]
fn replies_come_back_as_they_were() {
    let mut stream = Vec::new();
    replies().iter().for_each(|reply| reply.encode(&mut stream));
    let mut inbox = Inbox::new(FRAME_CAP);
    inbox.push(&stream);
    for expected in replies() {
        let frame = inbox.take().unwrap().unwrap();
        assert_eq!(Reply::decode(frame), Ok(expected));
    }
}

/// A frame that ends with a piece may be cut there. Every other truncated frame is refused.
#[test]
fn a_truncated_frame_is_refused_or_has_a_shorter_piece() {
    for body in bodies() {
        for length in 0..body.len() {
            let (request, reply) = (Request::decode(&body[..length]), Reply::decode(&body[..length]));
            let ends_in_a_piece = matches!(
                request,
                Ok(Request::Blob { .. } | Request::Data { .. } | Request::Entry { .. })
            ) || matches!(reply, Ok(Reply::Blob { .. } | Reply::Data { .. }));
            assert!(
                ends_in_a_piece || (request.is_err() && reply.is_err()),
                "{body:?} cut to {length}"
            );
        }
    }
}

/// Tries every value of every byte.
#[test]
fn no_changed_byte_makes_a_decoder_panic() {
    for body in bodies() {
        for at in 0..body.len() {
            for value in 0..=u8::MAX {
                let mut changed = body.clone();
                changed[at] = value;
                let request = Request::decode(&changed);
                let reply = Reply::decode(&changed);
                assert!(request.is_err() || reply.is_err(), "{changed:?} is both");
            }
        }
    }
}

#[test]
fn what_is_decoded_is_encoded_to_the_same_bytes() {
    for body in bodies() {
        for bit in 0..8 * body.len() {
            let mut changed = body.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let mut again = Vec::new();
            match (Request::decode(&changed), Reply::decode(&changed)) {
                (Ok(request), _) => request.encode(&mut again),
                (_, Ok(reply)) => reply.encode(&mut again),
                _ => continue,
            }
            assert_eq!(again[4..], changed);
        }
    }
}

#[test]
fn lengths_and_counts_are_believed_only_as_far_as_bytes_have_come() {
    let id = [0u8; 4];
    let hostile: [&[&[u8]]; 5] = [
        // a count of digests
        &[&[0x03], &id, &u16::MAX.to_le_bytes()],
        // the length of a token
        &[&[0x01], b"WAFR", &[1, 0, 1, 0], &u32::MAX.to_le_bytes()],
        // the length of an entry
        &[&[0x83], &id, &[0, 0], &u32::MAX.to_le_bytes()],
        // the count of contents
        &[&[0x83], &id, &[0, 0], &[0; 4], &u16::MAX.to_le_bytes()],
        // the count of bits
        &[&[0x88], &id, &u16::MAX.to_le_bytes(), &[0; 9]],
    ];
    for parts in hostile {
        let body = parts.concat();
        assert!(Request::decode(&body).is_err());
        assert!(Reply::decode(&body).is_err());
    }
}

#[test]
fn more_digests_than_one_request_may_have_are_refused() {
    let get = |count| Request::Get {
        id: 1,
        digests: vec![digest("x"); count],
    };
    for (count, is_fine) in [(MOST_DIGESTS, true), (MOST_DIGESTS + 1, false)] {
        let mut out = Vec::new();
        get(count).encode(&mut out);
        assert_eq!(Request::decode(&out[4..]).is_ok(), is_fine, "{count}");
    }
}

#[test]
fn a_piece_above_its_limit_and_an_empty_piece_are_refused() {
    let bytes = vec![0; PIECE + 1];
    for (length, is_fine) in [(0, false), (1, true), (PIECE, true), (PIECE + 1, false)] {
        let mut out = Vec::new();
        Request::Data {
            id: 1,
            bytes: &bytes[..length],
        }
        .encode(&mut out);
        assert_eq!(Request::decode(&out[4..]).is_ok(), is_fine, "{length}");
    }
}

#[test]
fn a_blob_does_not_begin_with_more_than_it_has() {
    let mut out = Vec::new();
    let begun = Begun {
        size: 2,
        ..begun(b"abc")
    };
    Request::Blob { id: 1, begun }.encode(&mut out);
    assert!(Request::decode(&out[4..]).is_err());
}

/// The largest frame that a server sends is accepted by a client.
#[test]
fn a_full_piece_and_its_fields_fit_into_a_frame() {
    let bytes = vec![0; PIECE];
    let needs = vec![digest("x"); MOST_DIGESTS];
    let entry = Request::Entry {
        id: 1,
        key: digest("key"),
        needs,
        bytes: &bytes,
    };
    let mut out = Vec::new();
    entry.encode(&mut out);
    assert!(out.len() - 4 <= FRAME_CAP, "{}", out.len());
}

#[test]
fn bits_are_those_that_were_put() {
    for count in [0, 1, 7, 8, 9, 64, 4096] {
        let put: Vec<bool> = (0..count).map(|n| n % 3 == 0).collect();
        let bits: Bits = put.iter().copied().collect();
        assert_eq!(bits.len(), count);
        assert_eq!(bits.iter().collect::<Vec<_>>(), put);
        assert!(!bits.get(count), "there is none after the last");
    }
}
