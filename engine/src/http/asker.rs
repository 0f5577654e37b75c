//! Checks by which name an HTTP port of ours was asked, and whether a page of another site asks.
//!
//! Pure. A browser sends requests for any page that is open in it, even to ports of this machine and of the local
//! network. It tells us in `Origin` and `Sec-Fetch-Site`. A page whose own name resolves to us (DNS rebinding) counts
//! as ours for the browser, but then `Host` has the page's name.

use std::net::{IpAddr, Ipv6Addr};

use httparse::Request;

use super::Refused;

/// The longest host name.
const LONGEST: usize = 253;

/// The names and addresses by which a port may be asked. Loopback addresses are always allowed.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// It listens on every address of the machine. Outside of a container or a network the machine may have further
    /// addresses.
    takes_any_address: bool,
    addresses: Vec<IpAddr>,
    names: Vec<String>,
}

/// What a page of another site may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    Nothing,
    /// Open our page in a tab, as a link does. The other page sees nothing of it.
    Leads,
}

const NO_HOST: Refused = Refused(400, "one Host is needed");
const OTHER_HOST: Refused = Refused(421, "it is asked by a name that is not its own; see the option --host");
const OTHER_PAGE: Refused = Refused(403, "pages from elsewhere may not ask");

impl Names {
    /// For a port that listens on these addresses, and has these names besides.
    pub fn new(listens: impl IntoIterator<Item = IpAddr>, given: &[String]) -> Names {
        let mut names = Names::default();
        for address in listens {
            names.takes_any_address |= address.is_unspecified();
            names.addresses.push(address);
        }
        for name in given {
            match address(name) {
                Some(address) => names.addresses.push(address),
                None => names.names.push(name.to_ascii_lowercase()),
            }
        }
        names
    }

    /// Whether a request may be answered. The token is checked elsewhere.
    pub fn check(&self, request: &Request<'_, '_>, elsewhere: Elsewhere) -> Result<(), Refused> {
        let only = |name: &str| {
            let mut all = request
                .headers
                .iter()
                .filter(|header| header.name.eq_ignore_ascii_case(name));
            (all.next().map(|header| header.value), all.next().is_some())
        };
        let host = match only("host") {
            (_, true) => return Err(NO_HOST),
            // Browsers and proxies do not send HTTP/1.0 without a Host.
            (None, _) if request.version == Some(0) => None,
            (None, _) => return Err(NO_HOST),
            (Some(host), _) => Some(host),
        };
        let target = authority_of(request.path.unwrap_or_default());
        if !host.into_iter().chain(target).all(|authority| self.has(authority)) {
            return Err(OTHER_HOST);
        }
        let is_same = |origin: &[u8]| {
            let authority = after_scheme(origin);
            authority.is_some_and(|found| host.is_some_and(|host| found.eq_ignore_ascii_case(host)))
        };
        match only("origin") {
            (None, _) => {}
            (Some(origin), false) if is_same(origin) => {}
            _ => return Err(OTHER_PAGE),
        }
        let leads = elsewhere == Elsewhere::Leads
            && only("sec-fetch-mode") == (Some(b"navigate"), false)
            && only("sec-fetch-dest") == (Some(b"document"), false);
        match only("sec-fetch-site") {
            (None | Some(b"same-origin" | b"none"), false) => Ok(()),
            (Some(_), false) if leads => Ok(()),
            _ => Err(OTHER_PAGE),
        }
    }

    /// Whether this is a name of the port. The port number may differ: a tunnel may have another.
    fn has(&self, authority: &[u8]) -> bool {
        let Some(host) = host_of(authority) else { return false };
        match address(host) {
            Some(address) => self.takes_any_address || address.is_loopback() || self.addresses.contains(&address),
            None => {
                host.eq_ignore_ascii_case("localhost") || self.names.iter().any(|name| host.eq_ignore_ascii_case(name))
            }
        }
    }
}

/// Parses the value of `--host`.
pub fn host(text: &str) -> Result<String, &'static str> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("it is a name or an address, without a port"),
    }
}

fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    address(text).is_some() || (!text.is_empty() && text.len() <= LONGEST && text.bytes().all(is_part))
}

fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().ok().map(|address| address.to_canonical()),
        None => text.parse().ok(),
    }
}

/// The part before the port.
fn host_of(authority: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(authority).ok()?;
    let is_port = |port: &str| !port.is_empty() && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    let host = match text.rsplit_once(':') {
        // The last colon belongs to an IPv6 address in brackets.
        Some((_, rest)) if rest.ends_with(']') => text,
        Some((host, port)) => is_port(port).then_some(host)?,
        None => text,
    };
    // An IPv6 address needs brackets here.
    let is_bracketed = host.starts_with('[') || !host.contains(':');
    (is_bracketed && is_name(host)).then_some(host)
}

/// The host of a target in the form for proxies.
fn authority_of(target: &str) -> Option<&[u8]> {
    after_scheme(target.as_bytes()).map(|rest| {
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
        &rest[..end.unwrap_or(rest.len())]
    })
}

fn after_scheme(text: &[u8]) -> Option<&[u8]> {
    let has = |scheme: &[u8]| {
        text.get(..scheme.len())
            .is_some_and(|at| at.eq_ignore_ascii_case(scheme))
    };
    let scheme: &[&[u8]] = &[b"http://", b"https://"];
    scheme
        .iter()
        .find(|scheme| has(scheme))
        .map(|scheme| &text[scheme.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask_with(names: &Names, elsewhere: Elsewhere, line: &str, headers: &str) -> u16 {
        let text = format!("{line}\r\n{headers}\r\n");
        let mut space = [httparse::EMPTY_HEADER; 16];
        let mut request = Request::new(&mut space);
        assert!(request.parse(text.as_bytes()).unwrap().is_complete());
        names.check(&request, elsewhere).err().map_or(200, |refused| refused.0)
    }

    fn ask(names: &Names, headers: &str) -> u16 {
        ask_with(names, Elsewhere::Nothing, "GET / HTTP/1.1", headers)
    }

    fn names(listens: &[&str], given: &[&str]) -> Names {
        let given: Vec<_> = given.iter().map(|name| (*name).to_owned()).collect();
        Names::new(listens.iter().map(|text| text.parse().unwrap()), &given)
    }

    #[test]
    fn a_port_is_asked_by_its_own_names_only() {
        let names = names(&["10.1.2.3", "::1"], &["Cache.example", "192.0.2.7", "2001:db8::1"]);
        for host in [
            "localhost",
            "LocalHost:7117",
            "127.0.0.1",
            "127.0.0.1:9",
            "[::1]:7117",
            "[::1]",
            "10.1.2.3:7117",
            "cache.EXAMPLE:1",
            "192.0.2.7",
            "[2001:db8::1]:80",
        ] {
            assert_eq!(ask(&names, &format!("Host: {host}\r\n")), 200, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7117",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "evil.localhost",
            "localhost.",
            "127.0.0.1:",
            "127.0.0.1:8x",
            "127.0.0.1:700000",
            "127.0.0.1@evil.example",
            "evil.example@127.0.0.1",
            "evil.example#127.0.0.1",
            "evil.example/127.0.0.1",
            "cache.example cache.example",
            "[cache.example]",
            "[::1",
            "::1",
            "10.1.2.4",
            "0.0.0.0",
            "2130706433",
            "",
        ] {
            assert_eq!(ask(&names, &format!("Host: {host}\r\n")), 421, "{host}");
        }
    }

    #[test]
    fn where_every_address_is_listened_on_any_address_is_its_own() {
        let names = names(&["0.0.0.0"], &[]);
        assert_eq!(ask(&names, "Host: 198.51.100.9:7117\r\n"), 200);
        assert_eq!(ask(&names, "Host: evil.example:7117\r\n"), 421);
    }

    #[test]
    fn a_host_comes_once_and_a_target_does_not_evade_it() {
        let names = names(&["127.0.0.1"], &[]);
        assert_eq!(ask(&names, ""), 400);
        assert_eq!(ask(&names, "Host: localhost\r\nHost: localhost\r\n"), 400);
        let of = |line: &str, headers: &str| ask_with(&names, Elsewhere::Nothing, line, headers);
        assert_eq!(of("GET / HTTP/1.0", ""), 200);
        assert_eq!(of("GET / HTTP/1.0", "Host: evil.example\r\n"), 421);
        assert_eq!(of("GET http://localhost:1/x HTTP/1.1", "Host: localhost\r\n"), 200);
        for target in [
            "http://evil.example/",
            "HTTP://evil.example",
            "https://evil.example?x",
            "http://localhost@evil.example/",
            "http:///x",
        ] {
            let line = format!("GET {target} HTTP/1.1");
            assert_eq!(of(&line, "Host: localhost\r\n"), 421, "{target}");
        }
    }

    #[test]
    fn pages_from_elsewhere_are_refused() {
        let names = names(&["127.0.0.1"], &[]);
        let of = |headers: &str| ask(&names, &format!("Host: localhost:7117\r\n{headers}\r\n"));
        for headers in [
            "Origin: http://localhost:7117",
            "Origin: https://LOCALHOST:7117",
            "Sec-Fetch-Site: same-origin",
            "Sec-Fetch-Site: none",
        ] {
            assert_eq!(of(headers), 200, "{headers}");
        }
        for headers in [
            "Origin: null",
            "Origin: http://evil.example",
            "Origin: http://localhost",
            "Origin: http://localhost:3000",
            "Origin: http://127.0.0.1:7117",
            "Origin: file://",
            "Origin: localhost:7117",
            "Origin: http://localhost:7117 http://evil.example",
            "Origin: http://localhost:7117\r\nOrigin: http://evil.example",
            "Origin: http://evil.example\r\nSec-Fetch-Site: same-origin",
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Site: same-site",
            "Sec-Fetch-Site: whatever",
            "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site",
        ] {
            assert_eq!(of(headers), 403, "{headers}");
        }
    }

    #[test]
    fn a_link_may_lead_a_tab_to_a_page_of_ours_but_not_a_frame() {
        let names = names(&["127.0.0.1"], &[]);
        let link = "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
        let of = |more: &str, elsewhere| ask_with(&names, elsewhere, "GET / HTTP/1.1", &format!("{link}{more}\r\n"));
        assert_eq!(of("Sec-Fetch-Dest: document", Elsewhere::Leads), 200);
        assert_eq!(of("Sec-Fetch-Dest: document", Elsewhere::Nothing), 403);
        assert_eq!(of("Sec-Fetch-Dest: iframe", Elsewhere::Leads), 403);
        assert_eq!(
            of("Sec-Fetch-Dest: document\r\nOrigin: null", Elsewhere::Leads),
            403,
            "a form that is sent"
        );
    }
}
