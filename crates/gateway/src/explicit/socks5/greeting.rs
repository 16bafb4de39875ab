//! What a SOCKS5 client says up to its request, as a machine without a socket.
//!
//! It asks for an exact number of bytes at a time, so that what a client sends
//! ahead for its destination stays where the tunnel finds it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::super::Credentials;

/// First byte of every message (RFC 1928 §3).
pub(crate) const VERSION: u8 = 5;
/// Most bytes that are asked for at a time: a counted text and the byte or the
/// port after it.
pub(crate) const NEED_MAX: usize = 255 + 2;

const METHOD_NONE: u8 = 0;
const METHOD_PASSWORD: u8 = 2;
const METHOD_NO_ACCEPTABLE: u8 = 0xff;
/// RFC 1929 §2.
const PASSWORD_VERSION: u8 = 1;
const COMMAND_CONNECT: u8 = 1;
const ADDRESS_IPV4: u8 = 1;
const ADDRESS_NAME: u8 = 3;
const ADDRESS_IPV6: u8 = 4;
const PORT_BYTES: usize = 2;

/// RFC 1928 §6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reply {
    Succeeded = 0,
    NotAllowed = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

impl Reply {
    /// The message that carries it; `bound` is the address the gateway dialled from.
    pub(crate) fn message(self, bound: Option<SocketAddr>) -> Vec<u8> {
        let bound = bound.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let mut message = vec![VERSION, self as u8, 0];
        match bound.ip() {
            IpAddr::V4(ip) => {
                message.push(ADDRESS_IPV4);
                message.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                message.push(ADDRESS_IPV6);
                message.extend_from_slice(&ip.octets());
            }
        }
        message.extend_from_slice(&bound.port().to_be_bytes());
        message
    }
}

/// What a client asked to be connected to: a name or an address, as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Why a greeting came to nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The client does not speak SOCKS5 as the RFCs have it; it is told nothing.
    Malformed,
    /// No name and password that are known; told by the last answer.
    Credentials,
    /// Told by this reply.
    Reply(Reply),
}

/// A conversation under way.
#[derive(Debug)]
pub(crate) struct Greeting<'c> {
    credentials: Option<&'c Credentials>,
    stage: Stage,
}

/// What comes next.
#[derive(Debug)]
enum Stage {
    /// Version and the number of methods.
    Hello,
    Methods(usize),
    /// Version and length of the name.
    Login,
    /// The name, and the length of the password.
    User(usize),
    Password {
        user: Vec<u8>,
        len: usize,
    },
    /// Version, command, a reserved byte and the kind of address.
    Request,
    NameLength {
        command: u8,
    },
    Address {
        command: u8,
        kind: u8,
        len: usize,
    },
}

impl<'c> Greeting<'c> {
    /// A client that must know `credentials`, if there are any.
    pub(crate) const fn new(credentials: Option<&'c Credentials>) -> Self {
        Self { credentials, stage: Stage::Hello }
    }

    /// How many bytes to read next: at most [`NEED_MAX`], maybe none.
    pub(crate) const fn need(&self) -> usize {
        match &self.stage {
            Stage::Hello | Stage::Login => 2,
            Stage::Methods(count) => *count,
            Stage::User(len) => *len + 1,
            Stage::Password { len, .. } => *len,
            Stage::Request => 4,
            Stage::NameLength { .. } => 1,
            Stage::Address { len, .. } => *len + PORT_BYTES,
        }
    }

    /// Takes the [`need`](Self::need)ed bytes. Appends what the client is to be
    /// told to `answer`, also when it is refused. Says the destination once the
    /// client has named it.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Option<Destination>, Refused> {
        debug_assert_eq!(bytes.len(), self.need());
        self.stage = match (std::mem::replace(&mut self.stage, Stage::Hello), bytes) {
            (Stage::Hello, &[VERSION, count]) => Stage::Methods(count.into()),
            (Stage::Methods(_), methods) => self.choose(methods, answer)?,
            (Stage::Login, &[PASSWORD_VERSION, len]) => Stage::User(len.into()),
            (Stage::User(_), [user @ .., len]) => {
                Stage::Password { user: user.to_vec(), len: usize::from(*len) }
            }
            (Stage::Password { user, .. }, password) => {
                let known = self.credentials.is_some_and(|known| known.accept(&user, password));
                answer.extend_from_slice(&[PASSWORD_VERSION, u8::from(!known)]);
                if !known {
                    return Err(Refused::Credentials);
                }
                Stage::Request
            }
            (Stage::Request, &[VERSION, command, _reserved, kind]) => match kind {
                ADDRESS_IPV4 => Stage::Address { command, kind, len: 4 },
                ADDRESS_IPV6 => Stage::Address { command, kind, len: 16 },
                ADDRESS_NAME => Stage::NameLength { command },
                _ => return Err(Refused::Reply(Reply::AddressNotSupported)),
            },
            (Stage::NameLength { command }, &[len]) => {
                Stage::Address { command, kind: ADDRESS_NAME, len: len.into() }
            }
            (Stage::Address { command, kind, len }, bytes) => {
                let destination = destination(kind, bytes.split_at(len))?;
                if command != COMMAND_CONNECT {
                    return Err(Refused::Reply(Reply::CommandNotSupported));
                }
                return Ok(Some(destination));
            }
            _ => return Err(Refused::Malformed),
        };
        Ok(None)
    }

    /// The one method there is: a password when one is asked for, else none.
    fn choose(&self, methods: &[u8], answer: &mut Vec<u8>) -> Result<Stage, Refused> {
        let (method, next) = match self.credentials {
            Some(_) => (METHOD_PASSWORD, Stage::Login),
            None => (METHOD_NONE, Stage::Request),
        };
        if !methods.contains(&method) {
            answer.extend_from_slice(&[VERSION, METHOD_NO_ACCEPTABLE]);
            return Err(Refused::Credentials);
        }
        answer.extend_from_slice(&[VERSION, method]);
        Ok(next)
    }
}

fn destination(kind: u8, (host, port): (&[u8], &[u8])) -> Result<Destination, Refused> {
    let host = match kind {
        ADDRESS_IPV4 => <[u8; 4]>::try_from(host).ok().map(|ip| Ipv4Addr::from(ip).to_string()),
        ADDRESS_IPV6 => <[u8; 16]>::try_from(host).ok().map(|ip| Ipv6Addr::from(ip).to_string()),
        _ => std::str::from_utf8(host).ok().map(str::to_owned),
    };
    let port = <[u8; PORT_BYTES]>::try_from(port).ok().map(u16::from_be_bytes);
    let (host, port) = host.zip(port).ok_or(Refused::Malformed)?;
    Ok(Destination { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything a client says at once; what it is told, and how it ends.
    /// `None`: it would have to go on.
    fn run(
        credentials: Option<&Credentials>,
        mut said: &[u8],
    ) -> (Vec<u8>, Option<Result<Destination, Refused>>) {
        let (mut greeting, mut answer) = (Greeting::new(credentials), Vec::new());
        while let Some((bytes, rest)) = said.split_at_checked(greeting.need()) {
            said = rest;
            match greeting.take(bytes, &mut answer) {
                Ok(None) => {}
                Ok(Some(destination)) => return (answer, Some(Ok(destination))),
                Err(refused) => return (answer, Some(Err(refused))),
            }
        }
        (answer, None)
    }

    fn to(host: &str, port: u16) -> Option<Result<Destination, Refused>> {
        Some(Ok(Destination { host: host.to_owned(), port }))
    }

    #[test]
    fn reads_each_kind_of_address() {
        let hello = [5, 2, 0, 2];
        let cases: [(&[u8], &str); 3] = [
            (&[5, 1, 0, 1, 192, 0, 2, 7, 0, 80], "192.0.2.7"),
            (b"\x05\x01\x00\x03\x05a.net\x00\x50", "a.net"),
            (
                &[5, 1, 0, 4, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 80],
                "2001:db8::1",
            ),
        ];
        for (request, host) in cases {
            let said = [&hello[..], request, b"what follows stays"].concat();
            assert_eq!(run(None, &said), (vec![5, 0], to(host, 80)), "{host}");
        }
    }

    #[test]
    fn a_password_is_asked_for_and_compared() {
        let known = Credentials { user: "ann".into(), password: "secret".into() };
        let request = b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50";
        let good = [b"\x05\x01\x02\x01\x03ann\x06secret", &request[..]].concat();
        assert_eq!(run(Some(&known), &good), (vec![5, 2, 1, 0], to("127.0.0.1", 80)));
        let bad = [b"\x05\x01\x02\x01\x03ann\x00", &request[..]].concat();
        assert_eq!(run(Some(&known), &bad), (vec![5, 2, 1, 1], Some(Err(Refused::Credentials))));
        let without = [b"\x05\x01\x00", &request[..]].concat();
        assert_eq!(run(Some(&known), &without), (vec![5, 255], Some(Err(Refused::Credentials))));
        // Who offers no method at all is told so, too.
        assert_eq!(run(None, &[5, 0]), (vec![5, 255], Some(Err(Refused::Credentials))));
    }

    #[test]
    fn what_is_not_served_is_refused_with_its_reason() {
        let cases: [(&[u8], Refused); 6] = [
            (&[4, 1], Refused::Malformed),
            (&[5, 1, 0, 4, 1, 0, 1], Refused::Malformed),
            (b"\x05\x01\x00\x05\x01\x00\x03\x01\xff\x00\x50", Refused::Malformed),
            (&[5, 1, 0, 5, 1, 0, 9], Refused::Reply(Reply::AddressNotSupported)),
            (&[5, 1, 0, 5, 2, 0, 1, 1, 2, 3, 4, 0, 80], Refused::Reply(Reply::CommandNotSupported)),
            (&[5, 1, 0, 5, 3, 0, 3, 0, 0, 80], Refused::Reply(Reply::CommandNotSupported)),
        ];
        for (said, refused) in cases {
            assert_eq!(run(None, said).1, Some(Err(refused)), "{said:?}");
        }
        assert_eq!(run(None, &[5, 1, 0, 5, 1, 0, 1, 1, 2]), (vec![5, 0], None));
    }

    #[test]
    fn a_reply_names_the_address_it_is_bound_to() {
        assert_eq!(Reply::Succeeded.message(None), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let bound = "[2001:db8::1]:258".parse().ok();
        let message = Reply::ConnectionRefused.message(bound);
        assert_eq!(message[..4], [5, 5, 0, 4]);
        assert_eq!(message[message.len() - 3..], [1, 1, 2]);
    }
}
