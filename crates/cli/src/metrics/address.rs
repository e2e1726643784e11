//! Where figures are served: a port of this machine, or a socket in the file system.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// As it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port. Without an address of its own it is one that only this machine reaches.
    Port(SocketAddr),
    /// A path.
    Socket(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if text.contains('/') {
            return Ok(Address::Socket(PathBuf::from(text)));
        }
        let port = text.strip_prefix(':').unwrap_or(text);
        if let Ok(port) = port.parse::<u16>() {
            let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
            return Ok(Address::Port(SocketAddr::new(local, port)));
        }
        let with_port = text.strip_prefix("localhost:").map(str::parse::<u16>);
        if let Some(Ok(port)) = with_port {
            return Ok(Address::Port(SocketAddr::new(
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                port,
            )));
        }
        text.parse::<SocketAddr>().map(Address::Port).map_err(|_| {
            "give a port (9779), an address of this machine with a port (10.0.0.7:9779, [::1]:9779), or the path of a socket with a / in it"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_for_this_machine_alone() {
        let port = |text: &str| match text.parse() {
            Ok(Address::Port(address)) => address.to_string(),
            other => format!("{other:?}"),
        };
        for text in ["9779", ":9779", "localhost:9779", "127.0.0.1:9779"] {
            assert_eq!(port(text), "127.0.0.1:9779", "{text}");
        }
        assert_eq!(port("[::]:80"), "[::]:80");
        assert_eq!(port("0.0.0.0:80"), "0.0.0.0:80");
    }

    #[test]
    fn what_has_a_slash_is_a_socket_and_the_rest_a_mistake_with_a_remedy() {
        let path = "./metrics".parse();
        assert_eq!(path, Ok(Address::Socket("./metrics".into())));
        for text in ["", "metrics", "70000", "1.2.3.4", "host:9779"] {
            let why = text.parse::<Address>().unwrap_err();
            assert!(why.contains("9779"), "{text}");
        }
    }
}
