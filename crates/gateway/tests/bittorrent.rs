//! BitTorrent through SOCKS5 on the proxy port: the second download comes from
//! the store. Both ends are written here, with the product's own codec; real
//! clients do the same in the lab.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::unwrap_used,
    reason = "a test that meets the unexpected fails"
)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use sha1::{Digest, Sha1};
use weir_bittorrent::bencode::Writer;
use weir_bittorrent::{
    Block, Extensions, Framer, Handshake, InfoHash, Item, Message, MetadataMessage, Reserved,
};

use support::{PATIENCE, Proxy};

const PIECE_BYTES: usize = 64 * 1024;
const BLOCK_BYTES: usize = 16 * 1024;
/// Not a whole number of pieces or blocks.
const CONTENT_BYTES: usize = 1_000_003;
/// What the client calls `ut_metadata`, and what the seeder does.
const CLIENT_METADATA_ID: u8 = 7;
const SEEDER_METADATA_ID: u8 = 3;

struct Torrent {
    content: Vec<u8>,
    info: Vec<u8>,
    info_hash: InfoHash,
}

impl Torrent {
    fn new(seed: u32) -> Self {
        let content: Vec<u8> = (0..CONTENT_BYTES as u32)
            .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8)
            .collect();
        let pieces: Vec<u8> = content.chunks(PIECE_BYTES).flat_map(Sha1::digest).collect();
        let info = Writer::new()
            .begin_dict()
            .bytes(b"length")
            .int(CONTENT_BYTES as i64)
            .bytes(b"name")
            .bytes(b"test content")
            .bytes(b"piece length")
            .int(PIECE_BYTES as i64)
            .bytes(b"pieces")
            .bytes(&pieces)
            .end()
            .finish();
        let info_hash = InfoHash(Sha1::digest(&info).into());
        Self { content, info, info_hash }
    }

    fn handshake(&self, peer_id: u8) -> [u8; 68] {
        let reserved = Reserved::EXTENSION_AND_FAST;
        Handshake { reserved, info_hash: self.info_hash, peer_id: [peer_id; 20] }.to_bytes()
    }

    fn blocks(&self) -> Vec<Block> {
        let blocks = (0..CONTENT_BYTES).step_by(BLOCK_BYTES).map(|at| Block {
            index: (at / PIECE_BYTES) as u32,
            begin: (at % PIECE_BYTES) as u32,
            len: BLOCK_BYTES.min(CONTENT_BYTES - at) as u32,
        });
        blocks.collect()
    }

    fn at(&self, block: Block) -> &[u8] {
        let from = block.index as usize * PIECE_BYTES + block.begin as usize;
        &self.content[from..from + block.len as usize]
    }
}

/// A connection that speaks BitTorrent after the handshake.
struct Wire {
    socket: TcpStream,
    framer: Framer,
}

impl Wire {
    fn send(&mut self, message: &Message) {
        self.socket.write_all(&message.to_bytes()).unwrap();
    }

    /// Answers a request for metadata, to a receiver that calls it `id`.
    fn answer_metadata(&mut self, torrent: &Torrent, payload: &Bytes, id: u8) {
        let request = MetadataMessage::parse(payload);
        assert_eq!(request, Some(MetadataMessage::Request { piece: 0 }), "it fits one piece");
        let data = torrent.info.clone().into();
        let total_bytes = torrent.info.len() as u32;
        self.send(&MetadataMessage::Data { piece: 0, total_bytes, data }.to_message(id));
    }

    /// The next item, `None` at the end of the stream.
    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.framer.poll_item().unwrap() {
                return Some(item);
            }
            let mut buffer = [0; 32 * 1024];
            match self.socket.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.framer.push(Bytes::copy_from_slice(&buffer[..n])),
            }
        }
    }
}

/// Serves `torrent` on `connections` connections, one after another; counts the
/// content bytes it sent. `flaw` is a piece it sends wrongly.
fn seeder(
    torrent: &Arc<Torrent>,
    connections: usize,
    flaw: Option<u32>,
) -> (SocketAddr, Arc<AtomicU64>, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (sent, torrent) = (Arc::new(AtomicU64::new(0)), Arc::clone(torrent));
    let count = Arc::clone(&sent);
    let thread = thread::spawn(move || {
        for _ in 0..connections {
            serve(&torrent, listener.accept().unwrap().0, flaw, &count);
        }
    });
    (addr, sent, thread)
}

fn serve(torrent: &Torrent, mut socket: TcpStream, flaw: Option<u32>, count: &AtomicU64) {
    socket.read_exact(&mut [0; 68]).unwrap();
    socket.write_all(&torrent.handshake(b'S')).unwrap();
    let mut wire = Wire { socket, framer: Framer::new() };
    let extensions = Extensions {
        ut_metadata: Some(SEEDER_METADATA_ID),
        metadata_bytes: Some(torrent.info.len() as u32),
        ..Extensions::default()
    };
    wire.send(&extensions.to_message());
    wire.send(&Message::HaveAll);
    while let Some(item) = wire.next() {
        let Item::Message { message, .. } = item else { continue };
        match message {
            Message::Interested => wire.send(&Message::Unchoke),
            Message::Request(block) => {
                let mut data = torrent.at(block).to_vec();
                if flaw == Some(block.index) {
                    data[0] ^= 1;
                }
                count.fetch_add(data.len() as u64, Ordering::Relaxed);
                wire.socket.write_all(&block.piece_header()).unwrap();
                wire.socket.write_all(&data).unwrap();
            }
            Message::Extended { id: SEEDER_METADATA_ID, payload } => {
                wire.answer_metadata(torrent, &payload, CLIENT_METADATA_ID);
            }
            _ => {}
        }
    }
}

/// Downloads everything by a SOCKS5 connection; returns the content.
fn download(proxy: &Proxy, to: SocketAddr, torrent: &Torrent) -> Vec<u8> {
    let mut socket = proxy.connect();
    let SocketAddr::V4(v4) = to else { panic!("tests use IPv4") };
    socket.write_all(&[5, 1, 0]).unwrap();
    socket.read_exact(&mut [0; 2]).unwrap();
    socket.write_all(&[5, 1, 0, 1]).unwrap();
    socket.write_all(&v4.ip().octets()).unwrap();
    socket.write_all(&v4.port().to_be_bytes()).unwrap();
    socket.read_exact(&mut [0; 10]).unwrap();
    // The handshake in two parts, the first too short to tell.
    let handshake = torrent.handshake(b'C');
    socket.write_all(&handshake[..7]).unwrap();
    thread::yield_now();
    socket.write_all(&handshake[7..]).unwrap();
    let mut theirs = [0; 68];
    socket.read_exact(&mut theirs).unwrap();
    assert_eq!(theirs, torrent.handshake(b'S'), "the seeder's own handshake arrives");

    let mut wire = Wire { socket, framer: Framer::new() };
    let extensions = Extensions {
        ut_metadata: Some(CLIENT_METADATA_ID),
        metadata_bytes: Some(torrent.info.len() as u32),
        ..Extensions::default()
    };
    wire.send(&extensions.to_message());
    wire.send(&Message::HaveNone);
    wire.send(&Message::Interested);
    let mut content = vec![0; CONTENT_BYTES];
    let mut missing = torrent.blocks().len();
    let mut at = 0;
    while missing > 0 {
        match wire.next().expect("the connection lasts until all is there") {
            Item::Message { message: Message::Unchoke, .. } => {
                for block in torrent.blocks() {
                    wire.send(&Message::Request(block));
                }
            }
            Item::Message { message: Message::Extended { id: 0, .. }, .. } => {}
            // Asked in the seeder's name; a client that has it answers. It never
            // asked itself, so anything else is not for it.
            Item::Message { message: Message::Extended { id, payload }, .. } => {
                assert_eq!(id, CLIENT_METADATA_ID);
                wire.answer_metadata(torrent, &payload, SEEDER_METADATA_ID);
            }
            Item::PieceHeader { block, .. } => {
                at = block.index as usize * PIECE_BYTES + block.begin as usize;
            }
            Item::PieceData { data, last } => {
                content[at..at + data.len()].copy_from_slice(&data);
                at += data.len();
                missing -= usize::from(last);
            }
            _ => {}
        }
    }
    content
}

/// Waits until what was fetched is in the store; hashing runs beside the flow.
fn await_held(proxy: &Proxy, bytes: u64) {
    let deadline = thread::spawn(|| thread::sleep(PATIENCE));
    while proxy.status().store.unwrap().held_bytes < bytes {
        assert!(!deadline.is_finished(), "held: {:?}", proxy.status().store);
        thread::yield_now();
    }
}

#[test]
fn the_second_download_comes_from_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::with_store(dir.path());
    let torrent = Arc::new(Torrent::new(1));
    let (to, sent, seeder) = seeder(&torrent, 2, None);

    assert!(download(&proxy, to, &torrent) == torrent.content, "first content differs");
    assert_eq!(sent.load(Ordering::Relaxed), CONTENT_BYTES as u64);
    await_held(&proxy, CONTENT_BYTES as u64);

    assert!(download(&proxy, to, &torrent) == torrent.content, "second content differs");
    assert_eq!(sent.load(Ordering::Relaxed), CONTENT_BYTES as u64, "the seeder sent it again");
    seeder.join().unwrap();

    let bytes = proxy.status().bytes;
    assert_eq!(bytes.asked_inside, 2 * CONTENT_BYTES as u64);
    assert_eq!(bytes.served_inside, CONTENT_BYTES as u64);
    assert_eq!(bytes.fetched_inside, CONTENT_BYTES as u64);
    assert_eq!(proxy.status().apps["bittorrent"].sessions, 2);
}

#[test]
fn what_is_cached_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let torrent = Arc::new(Torrent::new(2));
    let (to, sent, seeder) = seeder(&torrent, 2, None);
    let proxy = Proxy::with_store(dir.path());
    download(&proxy, to, &torrent);
    await_held(&proxy, CONTENT_BYTES as u64);
    drop(proxy);

    let proxy = Proxy::with_store(dir.path());
    assert!(download(&proxy, to, &torrent) == torrent.content, "content differs");
    assert_eq!(sent.load(Ordering::Relaxed), CONTENT_BYTES as u64, "the seeder sent it again");
    seeder.join().unwrap();
}

#[test]
fn a_piece_that_does_not_hash_is_never_served() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::with_store(dir.path());
    let torrent = Arc::new(Torrent::new(3));
    let (liar, _, lying) = seeder(&torrent, 1, Some(4));
    let got = download(&proxy, liar, &torrent);
    assert!(got != torrent.content, "the first seeder lies");
    await_held(&proxy, (CONTENT_BYTES - PIECE_BYTES) as u64);
    lying.join().unwrap();

    let (honest, sent, serving) = seeder(&torrent, 1, None);
    assert!(download(&proxy, honest, &torrent) == torrent.content, "a wrong piece was served");
    assert_eq!(sent.load(Ordering::Relaxed), PIECE_BYTES as u64, "only the bad piece is fetched");
    serving.join().unwrap();
}
