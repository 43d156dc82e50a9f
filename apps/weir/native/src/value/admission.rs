//! Admission to a listener: the limits that depend on addresses and time, not only on the number
//! of connections.
//!
//! A pure value: the caller passes the time and the peer's address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// An address of either family as a number. IPv4 addresses are mapped to `::ffff:0:0/96`, as an
/// IPv6 socket sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(u128);

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Address {
        Address(match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        })
    }
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    bits: u128,
    length: u8,
}

impl Prefix {
    /// The first `length` bits of an IPv4 address; `None` above 32.
    pub fn of_v4(ip: Ipv4Addr, length: u8) -> Option<Prefix> {
        (length <= 32).then(|| Prefix::new(Address::from(IpAddr::V4(ip)), 96 + length))
    }

    /// The first `length` bits of an IPv6 address; `None` above 128.
    pub fn of_v6(ip: Ipv6Addr, length: u8) -> Option<Prefix> {
        (length <= 128).then(|| Prefix::new(Address::from(IpAddr::V6(ip)), length))
    }

    /// The first `length` bits, at most 128.
    fn new(address: Address, length: u8) -> Prefix {
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        Prefix { bits: address.0 & mask, length }
    }
}

/// Allow and deny lists.
///
/// The longest matching prefix decides; if it is on both lists, it denies. An address that matches
/// neither list is allowed, unless there is an allow list. A lookup costs one hash per prefix
/// length in use.
#[derive(Default)]
pub struct Rules {
    /// Whether each prefix is allowed.
    prefixes: HashMap<Prefix, bool>,
    /// Prefix lengths in use, longest first.
    lengths: Vec<u8>,
    deny_others: bool,
}

impl Rules {
    /// Creates rules from the two lists.
    pub fn new(allow: &[Prefix], deny: &[Prefix]) -> Rules {
        let mut prefixes: HashMap<Prefix, bool> = allow.iter().map(|&prefix| (prefix, true)).collect();
        prefixes.extend(deny.iter().map(|&prefix| (prefix, false)));
        let mut lengths: Vec<u8> = prefixes.keys().map(|prefix| prefix.length).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        Rules { prefixes, lengths, deny_others: !allow.is_empty() }
    }

    fn allow(&self, address: Address) -> bool {
        let verdicts = self.lengths.iter().filter_map(|&length| self.prefixes.get(&Prefix::new(address, length)));
        verdicts.copied().next().unwrap_or(!self.deny_others)
    }

    fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }
}

/// A token bucket: `per_second` connections a second, and at most as many at once.
struct Bucket {
    per_second: f64,
    tokens: f64,
    /// Tokens promised to connections that are being accepted, which other threads must not take.
    promised: u32,
    filled: Instant,
}

impl Bucket {
    fn new(per_second: u32, now: Instant) -> Bucket {
        let per_second = f64::from(per_second);
        Bucket { per_second, tokens: per_second, promised: 0, filled: now }
    }

    /// Promises a token. If there is none, returns how long it takes to get one.
    fn wait(&mut self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.per_second);
        self.filled = now;
        let missing = 1.0 + f64::from(self.promised) - self.tokens;
        if missing > 0.0 {
            return Some(Duration::from_secs_f64(missing / self.per_second));
        }
        self.promised += 1;
        None
    }
}

/// Why a connection was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its address is denied, or is not on the allow list.
    Denied,
    /// Its address has too many connections.
    Crowded,
}

/// The limits, and the connections that they count.
pub struct Admission {
    rules: Rules,
    bucket: Option<Bucket>,
    per_address: Option<u32>,
    /// Connections by address, if the number per address is limited.
    present: HashMap<Address, u32>,
}

impl Admission {
    /// Creates limits that hold from `now` on. The rate is at least 1.
    pub fn new(rules: Rules, rate: Option<u32>, per_address: Option<u32>, now: Instant) -> Admission {
        let bucket = rate.map(|per_second| Bucket::new(per_second.max(1), now));
        Admission { rules, bucket, per_address, present: HashMap::new() }
    }

    /// Changes the limits. Connections that were admitted without being noted stay unknown.
    pub fn change(&mut self, limits: Admission) {
        let present = std::mem::take(&mut self.present);
        *self = Admission { present, ..limits };
    }

    /// Whether there are no limits at all.
    pub fn is_open(&self) -> bool {
        self.rules.is_empty() && self.bucket.is_none() && self.per_address.is_none()
    }

    /// How long to wait because of the rate. `None` promises a token; the caller must then call
    /// [`enter`](Self::enter) or [`forgo`](Self::forgo).
    pub fn wait(&mut self, now: Instant) -> Option<Duration> {
        self.bucket.as_mut().and_then(|bucket| bucket.wait(now))
    }

    /// Gives the promised token back, because no connection came in.
    pub fn forgo(&mut self) {
        if let Some(bucket) = &mut self.bucket {
            bucket.promised = bucket.promised.saturating_sub(1);
        }
    }

    /// Admits a connection, or says why not. A peer of a unix socket has no address, and is not
    /// checked for one. Returns whether the address was noted; then [`leave`](Self::leave) must
    /// follow.
    pub fn enter(&mut self, address: Option<Address>) -> Result<bool, Refusal> {
        self.forgo();
        let noted = match (address, self.per_address) {
            (Some(address), _) if !self.rules.allow(address) => return Err(Refusal::Denied),
            (Some(address), Some(limit)) => {
                let present = self.present.entry(address).or_default();
                if *present >= limit {
                    return Err(Refusal::Crowded);
                }
                *present += 1;
                true
            }
            _ => false,
        };
        if let Some(bucket) = &mut self.bucket {
            bucket.tokens -= 1.0;
        }
        Ok(noted)
    }

    /// Notes that a connection of a noted address is closed.
    pub fn leave(&mut self, address: Address) {
        if let Some(present) = self.present.get_mut(&address) {
            *present -= 1;
            if *present == 0 {
                self.present.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::from(text.parse::<IpAddr>().expect("an address"))
    }

    fn prefix(text: &str) -> Prefix {
        let (ip, length) = text.split_once('/').expect("a prefix");
        let length = length.parse().expect("a length");
        match ip.parse().expect("an address") {
            IpAddr::V4(ip) => Prefix::of_v4(ip, length).expect("a length of IPv4"),
            IpAddr::V6(ip) => Prefix::of_v6(ip, length).expect("a length of IPv6"),
        }
    }

    fn rules(allow: &[&str], deny: &[&str]) -> Rules {
        let prefixes = |list: &[&str]| list.iter().map(|text| prefix(text)).collect::<Vec<_>>();
        Rules::new(&prefixes(allow), &prefixes(deny))
    }

    #[test]
    fn without_rules_everybody_is_allowed() {
        assert!(rules(&[], &[]).allow(address("192.0.2.1")));
        assert!(rules(&[], &[]).is_empty());
    }

    #[test]
    fn those_denied_are_denied_and_others_not() {
        let rules = rules(&[], &["192.0.2.0/24", "2001:db8::/32"]);
        assert!(!rules.allow(address("192.0.2.255")));
        assert!(rules.allow(address("192.0.3.0")));
        assert!(!rules.allow(address("2001:db8:1::1")));
        assert!(rules.allow(address("2001:db9::1")));
    }

    #[test]
    fn a_list_of_those_allowed_denies_others() {
        let rules = rules(&["127.0.0.0/8"], &[]);
        assert!(rules.allow(address("127.255.0.1")));
        assert!(!rules.allow(address("128.0.0.1")));
        assert!(!rules.allow(address("::1")));
    }

    #[test]
    fn the_longest_prefix_decides() {
        let rules = rules(&["10.1.0.0/16", "10.1.2.3/32"], &["10.0.0.0/8", "10.1.2.0/24"]);
        assert!(!rules.allow(address("10.9.9.9")));
        assert!(rules.allow(address("10.1.9.9")));
        assert!(!rules.allow(address("10.1.2.4")));
        assert!(rules.allow(address("10.1.2.3")));
    }

    #[test]
    fn of_equal_prefixes_the_one_that_denies_counts() {
        assert!(!rules(&["10.0.0.0/8"], &["10.0.0.0/8"]).allow(address("10.0.0.1")));
    }

    #[test]
    fn addresses_of_ipv4_are_the_same_on_sockets_of_ipv6() {
        assert!(!rules(&[], &["192.0.2.0/24"]).allow(address("::ffff:192.0.2.7")));
        assert_eq!(address("::ffff:192.0.2.7"), address("192.0.2.7"));
    }

    #[test]
    fn a_prefix_of_no_bits_is_all_addresses() {
        assert!(!rules(&[], &["0.0.0.0/0"]).allow(address("8.8.8.8")));
        assert!(rules(&[], &["0.0.0.0/0"]).allow(address("2001:db8::1")));
        assert!(!rules(&[], &["::/0"]).allow(address("8.8.8.8")));
    }

    #[test]
    fn prefixes_have_the_length_of_their_family_at_most() {
        assert_eq!(Prefix::of_v4(Ipv4Addr::LOCALHOST, 33), None);
        assert_eq!(Prefix::of_v6(Ipv6Addr::LOCALHOST, 129), None);
    }

    #[test]
    fn a_rate_lets_in_what_it_says() {
        let now = Instant::now();
        let mut admission = Admission::new(Rules::default(), Some(10), None, now);
        for _ in 0..10 {
            assert_eq!(admission.wait(now), None);
            assert_eq!(admission.enter(None), Ok(false));
        }
        let wait = admission.wait(now).expect("no token is left");
        assert!(wait > Duration::from_millis(99) && wait < Duration::from_millis(101));
        let later = now + Duration::from_millis(101);
        assert_eq!(admission.wait(later), None);
        assert_eq!(admission.enter(None), Ok(false));
        assert!(admission.wait(later).is_some());
        // A promised token is not given to another connection.
        let again = now + Duration::from_millis(202);
        assert_eq!(admission.wait(again), None);
        assert!(admission.wait(again).is_some());
        admission.forgo();
        assert_eq!(admission.wait(again), None);
        admission.forgo();
        // A long pause fills the bucket, but does not overfill it.
        let much_later = now + Duration::from_secs(3600);
        for _ in 0..10 {
            assert_eq!(admission.wait(much_later), None);
            assert_eq!(admission.enter(None), Ok(false));
        }
        assert!(admission.wait(much_later).is_some());
    }

    #[test]
    fn those_turned_away_cost_no_token() {
        let now = Instant::now();
        let mut admission = Admission::new(rules(&[], &["10.0.0.0/8"]), Some(1), None, now);
        assert_eq!(admission.enter(Some(address("10.0.0.1"))), Err(Refusal::Denied));
        assert_eq!(admission.wait(now), None);
    }

    #[test]
    fn an_address_has_so_many_connections() {
        let mut admission = Admission::new(Rules::default(), None, Some(2), Instant::now());
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        assert_eq!(admission.enter(Some(one)), Ok(true));
        assert_eq!(admission.enter(Some(one)), Ok(true));
        assert_eq!(admission.enter(Some(one)), Err(Refusal::Crowded));
        assert_eq!(admission.enter(Some(other)), Ok(true));
        admission.leave(one);
        assert_eq!(admission.enter(Some(one)), Ok(true));
        admission.leave(one);
        admission.leave(one);
        admission.leave(other);
        assert!(admission.present.is_empty());
    }

    #[test]
    fn other_limits_know_who_is_there() {
        let now = Instant::now();
        let mut admission = Admission::new(Rules::default(), None, Some(2), now);
        let one = address("192.0.2.1");
        assert_eq!(admission.enter(Some(one)), Ok(true));
        admission.change(Admission::new(rules(&[], &["10.0.0.0/8"]), None, Some(1), now));
        assert_eq!(admission.enter(Some(one)), Err(Refusal::Crowded));
        assert_eq!(admission.enter(Some(address("10.0.0.1"))), Err(Refusal::Denied));
        admission.change(Admission::new(Rules::default(), None, None, now));
        assert_eq!(admission.enter(Some(one)), Ok(false));
        admission.leave(one);
        assert!(admission.present.is_empty());
    }

    #[test]
    fn nothing_to_ask_for_is_known() {
        let now = Instant::now();
        assert!(Admission::new(Rules::default(), None, None, now).is_open());
        assert!(!Admission::new(Rules::default(), Some(1), None, now).is_open());
        assert!(!Admission::new(rules(&[], &["::/0"]), None, None, now).is_open());
    }
}
