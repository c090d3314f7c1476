//! Who makes way for whom.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn client(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

fn shares(total: usize, idle: bool) -> Arc<Shares> {
    Shares::new(Capacity { total, per_client: None, idle }, Counter::default())
}

fn is_evicted(share: &Share) -> bool {
    !share.shares.lock().entries.contains_key(&share.id)
}

#[tokio::test(start_paused = true)]
async fn memory_of_who_holds_more_makes_way_and_ones_own_does_not() {
    let bodies = shares(14, false);
    let attackers: Vec<Share> = [1, 2].map(|number| bodies.try_take(client(number), 7).unwrap()).into();
    assert!(bodies.try_take(client(1), 1).is_none(), "nobody holds more");
    assert!(bodies.try_take(client(3), 7).is_none(), "as much is not more");
    let small = bodies.try_take(client(3), 2).unwrap();
    assert_eq!(attackers.iter().filter(|share| is_evicted(share)).count(), 1);
    small.protect();
    let began = Instant::now();
    assert!(bodies.take(client(3), 6, Duration::from_secs(1)).await.is_none());
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    drop(attackers);
    assert!(bodies.take(client(3), 6, Duration::from_secs(1)).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_protected_never_makes_way() {
    let requests = shares(2, false);
    let whole: Vec<Share> = (0..2).map(|_| requests.try_take(client(1), 1).unwrap()).collect();
    whole.iter().for_each(Share::protect);
    assert!(requests.try_take(client(2), 1).is_none());
    whole[0].release();
    assert!(requests.try_take(client(2), 1).is_some() && is_evicted(&whole[0]) && !is_evicted(&whole[1]));
}

proptest! {
    /// Whatever is taken, used and given back: the sums are right, the capacity holds, and a client that holds no more than its equal part
    /// of the capacity loses nothing to others.
    #[test]
    fn an_equal_part_is_everyones_own(
        idle in any::<bool>(), steps in proptest::collection::vec((0_u8..4, 1_usize..4, 0_u8..4), 1..200),
    ) {
        const TOTAL: usize = 16;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _guard = runtime.enter();
        let shares = shares(TOTAL, idle);
        let mut taken: Vec<(u8, Share)> = Vec::new();
        for (who, weight, what) in steps {
            match what {
                0 if !taken.is_empty() => drop(taken.remove(usize::from(who) * 7 % taken.len())),
                1 if !taken.is_empty() => taken[usize::from(who) * 5 % taken.len()].1.protect(),
                _ => {
                    // One that is taken in place of several may first take those of its own client.
                    let weight = if idle { 1 } else { weight };
                    let before: Vec<usize> = (0..4).map(|number| shares.lock().held(client(number))).collect();
                    taken.extend(shares.try_take(client(who), weight).map(|share| (who, share)));
                    for other in (0..4_u8).filter(|other| *other != who) {
                        let (was, is) = (before[usize::from(other)], shares.lock().held(client(other)));
                        prop_assert!(is == was || was >= before[usize::from(who)] + weight, "{was} {is}");
                    }
                }
            }
            taken.retain(|(_, share)| !is_evicted(share));
            let state = shares.lock();
            prop_assert!(state.total <= TOTAL);
            prop_assert_eq!(state.total, state.entries.values().map(|entry| entry.weight).sum::<usize>());
            prop_assert_eq!(state.total, state.held.values().sum::<usize>());
        }
        drop(taken);
        prop_assert!(shares.lock().held.is_empty());
    }
}
