//! Who makes way for whom.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn client(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

fn limit(total: usize, evicts_idle: bool) -> Arc<EvictingLimit> {
    EvictingLimit::new(ClientCapacity { total, per_client: None, evicts_idle }, Counter::default())
}

fn is_evicted(permit: &EvictingPermit) -> bool {
    !permit.limit.state.lock().entries.contains_key(&permit.id)
}

#[tokio::test(start_paused = true)]
async fn memory_of_who_holds_more_makes_way_and_ones_own_does_not() {
    let bodies = limit(14, false);
    let attackers: Vec<EvictingPermit> = [1, 2].map(|number| bodies.try_acquire(client(number), 7).unwrap()).into();
    assert!(bodies.try_acquire(client(1), 1).is_none(), "nobody holds more");
    assert!(bodies.try_acquire(client(3), 7).is_none(), "as much is not more");
    let small = bodies.try_acquire(client(3), 2).unwrap();
    assert_eq!(attackers.iter().filter(|permit| is_evicted(permit)).count(), 1);
    small.protect();
    let began = Instant::now();
    assert!(bodies.acquire(client(3), 6, Duration::from_secs(1)).await.is_none());
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    drop(attackers);
    assert!(bodies.acquire(client(3), 6, Duration::from_secs(1)).await.is_some());
}

/// Two of the three would have to go, and with one gone their client holds no more than the newcomer.
#[test]
fn no_eviction_without_enough_room() {
    let bodies = limit(14, false);
    let busy = bodies.try_acquire(client(1), 7).unwrap();
    busy.protect();
    let held: Vec<EvictingPermit> = (0..3).map(|_| bodies.try_acquire(client(2), 2).unwrap()).collect();
    assert!(bodies.try_acquire(client(3), 5).is_none());
    assert!(!held.iter().any(is_evicted));
    assert!(bodies.try_acquire(client(4), 1).is_some(), "and counts as before");
}

#[tokio::test(start_paused = true)]
async fn what_is_protected_never_makes_way() {
    let requests = limit(2, false);
    let whole: Vec<EvictingPermit> = (0..2).map(|_| requests.try_acquire(client(1), 1).unwrap()).collect();
    whole.iter().for_each(EvictingPermit::protect);
    assert!(requests.try_acquire(client(2), 1).is_none());
    whole[0].release();
    assert!(requests.try_acquire(client(2), 1).is_some() && is_evicted(&whole[0]) && !is_evicted(&whole[1]));
}

/// 300 addresses hold a whole port by connections that they do not use, and take ten of those that they lose anew in
/// each millisecond.
#[tokio::test(start_paused = true)]
async fn connections_without_use_keep_no_other_client_out() {
    for (each, reconnect) in [(1, 0), (3, 0), (1, 10), (3, 10)] {
        let connections = limit(256, true);
        let addresses = (0..300 * each).map(|number| IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + number % 300)));
        let mut attackers: Vec<(IpAddr, Option<EvictingPermit>)> =
            addresses.map(|address| (address, connections.try_acquire(address, 1))).collect();
        let mut kept = Vec::new();
        tokio::time::sleep(Duration::from_secs(1)).await;
        for review in 0..400 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let burst: Vec<EvictingPermit> = (0..8).filter_map(|_| connections.try_acquire(client(1), 1)).collect();
            assert_eq!(burst.len(), 8, "{each} {reconnect} {review}");
            // The time of a handshake.
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let lost = attackers.iter_mut().filter(|(_, permit)| permit.as_ref().is_none_or(is_evicted));
                for (address, permit) in lost.take(reconnect) {
                    *permit = connections.try_acquire(*address, 1);
                }
            }
            assert!(!burst.iter().any(is_evicted), "{each} {reconnect} {review}");
            for permit in burst {
                permit.protect();
                permit.release();
                kept.push(permit);
            }
            kept.truncate(100);
        }
        assert!(!kept.iter().any(is_evicted), "{each} {reconnect}");
    }
}

/// One client takes 60 connections in each millisecond, another one takes ten in all.
#[tokio::test(start_paused = true)]
async fn a_client_that_takes_many_anew_loses_its_own() {
    let connections = limit(256, true);
    let burst: Vec<EvictingPermit> = (0..10).filter_map(|_| connections.try_acquire(client(1), 1)).collect();
    let mut flood = Vec::new();
    for _ in 0..5 {
        flood.extend((0..60).filter_map(|_| connections.try_acquire(client(2), 1)));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    flood.extend((0..60).filter_map(|_| connections.try_acquire(client(2), 1)));
    assert!(flood.len() == 360 && !burst.iter().any(is_evicted));
}

#[tokio::test(start_paused = true)]
async fn the_addresses_of_an_ipv6_network_are_one_client() {
    let bodies = limit(8, false);
    let take = |address: &str| bodies.try_acquire(address.parse().unwrap(), 1);
    let held: Vec<EvictingPermit> = (0..8).filter_map(|host| take(&format!("2001:db8::{host}:1"))).collect();
    assert!(held.len() == 8 && take("2001:db8::ffff").is_none());
    let other = take("2001:db8:0:1::1").unwrap();
    assert!(held.iter().filter(|permit| is_evicted(permit)).count() == 1 && !is_evicted(&other));
    let _mapped = take("::ffff:10.0.0.1").unwrap();
    assert_eq!(bodies.state.lock().usage.of(&client_of(client(1))), 1, "an IPv4 address in another form");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is taken, used and given back: the sums are right, the capacity holds, an unused connection makes way,
    /// and a client that holds no more than its equal part of the capacity loses nothing else to others.
    #[test]
    fn an_equal_part_is_everyones_own(
        idle in any::<bool>(), steps in proptest::collection::vec((0_u8..4, 1_usize..4, 0_u8..4), 1..200),
    ) {
        const TOTAL: usize = 16;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _guard = runtime.enter();
        let limit = limit(TOTAL, idle);
        let (mut taken, mut used) = (Vec::<(u8, EvictingPermit)>::new(), HashSet::new());
        for (who, weight, what) in steps {
            match what {
                0 if !taken.is_empty() => drop(taken.remove(usize::from(who) * 7 % taken.len())),
                1 if !taken.is_empty() => {
                    let permit = &taken[usize::from(who) * 5 % taken.len()].1;
                    permit.protect();
                    used.insert(permit.id);
                    if weight == 1 {
                        permit.release();
                    }
                }
                _ => {
                    // One that is taken in place of several may first take those of its own client.
                    let weight = if idle { 1 } else { weight };
                    let before: Vec<usize> = (0..4).map(|number| limit.state.lock().usage.of(&client_of(client(number)))).collect();
                    let unused = idle && limit.state.lock().unused().next().is_some();
                    let permit = limit.try_acquire(client(who), weight);
                    prop_assert!(permit.is_some() || !unused);
                    taken.extend(permit.map(|permit| (who, permit)));
                    for other in (0..4_u8).filter(|other| *other != who) {
                        let (was, is) = (before[usize::from(other)], limit.state.lock().usage.of(&client_of(client(other))));
                        prop_assert!(is == was || unused || was >= before[usize::from(who)] + weight, "{was} {is}");
                    }
                    let lost = taken.iter().filter(|(_, permit)| is_evicted(permit));
                    let lost_in_use = lost.filter(|(_, permit)| used.contains(&permit.id)).count();
                    prop_assert!(!unused || lost_in_use == 0);
                }
            }
            taken.retain(|(_, permit)| !is_evicted(permit));
            let state = limit.state.lock();
            let total = state.usage.total;
            prop_assert!(total <= TOTAL);
            prop_assert_eq!(total, state.entries.values().map(|entry| entry.weight).sum::<usize>());
            prop_assert_eq!(total, (0..4).map(|number| state.usage.of(&client_of(client(number)))).sum::<usize>());
        }
        drop(taken);
        prop_assert!(limit.state.lock().usage.by_holder.is_empty());
    }
}
