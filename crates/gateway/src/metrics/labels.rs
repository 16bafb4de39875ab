//! Label values: closed enums with stable names. The names of the session layer
//! (legs, reasons) are its own.

/// Defines a closed enum of label values with stable names.
macro_rules! labels {
    ($(#[$meta:meta])+ pub enum $name:ident { $($(#[$doc:meta])+ $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])+ $variant,)+ }

        impl $name {
            /// All, in order.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// Stable name, for metrics and logs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

labels! {
    /// What a client speaks on the explicit port.
    pub enum ProxyKind {
        /// A plain HTTP request in absolute form, RFC 9112 §3.2.2.
        Http = "http",
        /// HTTP CONNECT, RFC 9110 §9.3.6.
        Connect = "connect",
        /// SOCKS version 5, RFC 1928.
        Socks5 = "socks5",
    }
}

labels! {
    /// Why the explicit port refused a connection or a request.
    pub enum ExplicitRefusal {
        /// The user or the password is wrong, or missing though required.
        Auth = "auth",
        /// The client is in no network that is served.
        Client = "client",
        /// The destination did not answer, or refused.
        ConnectFailed = "connect_failed",
        /// The destination is the gateway itself, or a place kept from clients.
        Destination = "destination",
        /// The request has been here before.
        Loop = "loop",
        /// The request breaks its protocol's grammar.
        Malformed = "malformed_request",
        /// The name has no address.
        NameUnknown = "name_unknown",
        /// The client did not say in time what it wants.
        Timeout = "timeout",
        /// A command or a scheme that the port does not offer.
        UnsupportedCommand = "unsupported_command",
        /// The server broke the protocol or the connection.
        UpstreamBroke = "upstream_broke",
    }
}

labels! {
    /// Why the admin API refused a request.
    pub enum AdminRefusal {
        /// The body is larger than any request needs.
        BodyTooLarge = "body_too_large",
        /// The `Host` is not a name of this machine: DNS rebinding.
        HostUnknown = "host_unknown",
        /// A change was asked for by another site's page, or without proof that it was not.
        OriginForeign = "origin_foreign",
        /// The bearer token is missing or wrong.
        Token = "token",
        /// Too many programs follow the live events already.
        TooManyFollowers = "too_many_followers",
    }
}
