//! What flows through CONNECT or SOCKS5: a session, or a relay.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use weir_identify::{Action, Pack, Speaker, Verdict, WINDOW_BYTES};
use weir_linux::splice;
use weir_session::Leg;

use super::Proxy;
use crate::driver::Prelude;
use crate::flows::{Ends, Mode};
use crate::sessions::NewFlow;

/// How long a beginning of a signature is held back for the rest of it.
const REST_TIMEOUT: Duration = Duration::from_secs(2);

/// Joins `inside` and `outside` until both are done.
pub(super) async fn run(proxy: &Arc<Proxy>, inside: TcpStream, outside: TcpStream) {
    run_with(proxy, inside, outside, Bytes::new()).await;
}

/// The same, when `early` was read from the client already.
pub(super) async fn run_with(
    proxy: &Arc<Proxy>,
    mut inside: TcpStream,
    outside: TcpStream,
    early: Bytes,
) {
    let (Ok(client), Ok(peer)) = (inside.peer_addr(), outside.peer_addr()) else { return };
    let Ok((first, verdict)) = first_bytes(&proxy.pack, &mut inside, &outside, early).await else {
        return;
    };
    if let Verdict::Match { app, action, .. } = verdict {
        proxy.sessions.flows.seen(app);
        if action == Action::Adopt && proxy.sessions.takes(app) {
            let prelude = Some(Prelude { from: Leg::Inside, bytes: first, delivered: false });
            let ends = Ends { client, peer, dialer: Leg::Inside };
            let mode = Mode::Explicit;
            let flow = NewFlow { app, mode, ends, inside, outside, prelude, kernel: None };
            return proxy.sessions.run(flow).await;
        }
    }
    relay(proxy, (&inside, &first), (&outside, &[])).await;
}

/// Joins two sockets that changed protocol, each with what was read ahead from
/// it.
pub(super) async fn join(
    proxy: &Arc<Proxy>,
    (inside, from_inside): (TcpStream, Bytes),
    (outside, from_outside): (TcpStream, Bytes),
) {
    relay(proxy, (&inside, &from_inside), (&outside, &from_outside)).await;
}

/// Relays; each socket comes with what was read from it already.
async fn relay(
    proxy: &Arc<Proxy>,
    (inside, from_inside): (&TcpStream, &[u8]),
    (outside, from_outside): (&TcpStream, &[u8]),
) {
    let relayed = splice::relay_after(inside, outside, from_inside, from_outside).await;
    let explicit = &proxy.sessions.metrics.explicit;
    explicit.bytes_relayed(Leg::Inside, relayed.forward);
    explicit.bytes_relayed(Leg::Outside, relayed.backward);
    if !relayed.complete {
        explicit.relay_cut();
    }
}

/// Reads from the client until the pack's verdict is final. When the other side
/// speaks first the client's bytes do not matter: no signature here begins so.
async fn first_bytes(
    pack: &Pack,
    inside: &mut TcpStream,
    outside: &TcpStream,
    early: Bytes,
) -> std::io::Result<(Bytes, Verdict)> {
    let mut first = BytesMut::from(&early[..]);
    loop {
        let verdict = pack.classify(Speaker::Dialer, &first);
        let open = first.is_empty() || (verdict == Verdict::NeedMore && first.len() < WINDOW_BYTES);
        if !open {
            return Ok((first.freeze(), verdict));
        }
        let wait = if first.is_empty() { Duration::MAX } else { REST_TIMEOUT };
        let mut byte = [0];
        tokio::select! {
            read = inside.read_buf(&mut first) => {
                if read? == 0 {
                    return Ok((first.freeze(), Verdict::NoMatch));
                }
            }
            peeked = outside.peek(&mut byte) => {
                peeked?;
                return Ok((first.freeze(), Verdict::NoMatch));
            }
            () = tokio::time::sleep(wait.min(Duration::from_secs(86_400))) => {
                return Ok((first.freeze(), Verdict::NoMatch));
            }
        }
    }
}
