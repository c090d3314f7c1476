//! Feeds mutated inputs to what reads untrusted input, on stable Rust. `make fuzz SECONDS=60` runs every target for so
//! long; as a part of the unit tests each target gets a few thousand inputs. With `make fuzz INPUTS=1000000` each gets
//! so many.
//!
//! There is no coverage feedback: mutations of sound inputs, of accepted ones above all, reach past the parsers.

pub mod hostile;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use peak_alloc::PeakAlloc;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Counts the bytes of every test program that has a target.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Inputs of a target in the unit tests.
const INPUTS: u64 = 3_000;
/// Longest input.
const MAX_BYTES: usize = 64 * 1024;
/// Accepted inputs that are mutated further.
const CORPUS: usize = 256;
/// The longest of them: mutations add more than they remove, and ten million inputs would grow to the longest.
const MAX_KEPT: usize = 4 * 1024;

/// What parsers stumble over.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"\"",
    b"'",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"-",
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e999",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"0001",
    b"NaN",
    b"Inf",
    b"\\u0000",
    b"\\ud800",
    b"\xff\xfe",
    b"\xf0\x9f\xa6\x80",
    b"\xe2\x80\xae",
    b"\x1b[2J",
    b"h",
    b"ms",
    b"\xc2\xb5s",
    b"Z",
    b"+24:00",
    b"-0",
    b"T24:00:60",
    b"9999-12-31",
    b"-009999-01-01",
    b"!!binary",
    b"&a *a",
    b"<<:",
    b"|\n",
    b"%s",
    b"../",
    b"=",
    b"[default]",
    b"#",
];

/// Feeds inputs to a target, which says whether it accepted one.
///
/// # Panics
/// When the target does; the input is printed first.
pub fn run(target: &str, seeds: &[&[u8]], feed: impl FnMut(&[u8]) -> bool) {
    run_at_most(u64::MAX, target, seeds, feed);
}

/// The same with a limit of inputs, for a target that keeps what it reads for as long as its process lasts.
///
/// # Panics
/// When the target does; the input is printed first.
pub fn run_at_most(limit: u64, target: &str, seeds: &[&[u8]], mut feed: impl FnMut(&[u8]) -> bool) {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let seed = std::env::var("FUZZ_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| if seconds.is_some() { rand::random() } else { 20_261_123 });
    let mut rng = StdRng::seed_from_u64(seed);
    let mut corpus: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    let mut fresh = corpus.clone().into_iter();
    let (begin, mut inputs, mut accepted) = (Instant::now(), 0_u64, 0_u64);
    let (mut all, mut worst) = (Duration::ZERO, Duration::ZERO);
    let most = std::env::var("FUZZ_INPUTS").ok().and_then(|text| text.parse().ok());
    let is_under_way = |inputs: u64| match (most, seconds) {
        (Some(most), _) => inputs < most,
        (None, Some(seconds)) => begin.elapsed() < seconds,
        (None, None) => inputs < INPUTS,
    };
    while inputs < limit && is_under_way(inputs) {
        let input = fresh.next().unwrap_or_else(|| mutated(&corpus, &mut rng));
        inputs += 1;
        let before = cpu();
        let fed = catch_unwind(AssertUnwindSafe(|| feed(&input)));
        let spent = cpu().saturating_sub(before);
        (all, worst) = (all + spent, worst.max(spent));
        match fed {
            Ok(false) => {}
            Ok(true) => {
                accepted += 1;
                if input.len() > MAX_KEPT {
                    continue;
                }
                if corpus.len() < CORPUS {
                    corpus.push(input);
                } else {
                    let at = rng.random_range(seeds.len()..CORPUS);
                    corpus[at] = input;
                }
            }
            Err(panic) => {
                println!("fuzz {target}: panicked at input {inputs} of seed {seed}: b\"{}\"", input.escape_ascii());
                resume_unwind(panic);
            }
        }
    }
    assert!(accepted > 0, "{target} accepted none of {inputs} inputs, not even the seeds");
    println!(
        "fuzz {target:<32} {inputs:>9} inputs, {accepted:>9} accepted, none crashed, CPU {:>6.1} us each, {:>6} us at most (seed {seed})",
        all.as_secs_f64() * 1e6 / f64::from(u32::try_from(inputs).unwrap_or(u32::MAX)),
        worst.as_micros(),
    );
}

/// CPU time of this thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Bytes that were in use at once while this ran, beside those before. `None` where other tests run at the same time:
/// `make fuzz` runs the targets named `fuzz_memory_` by themselves and sets `FUZZ_MEMORY`.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, Option<usize>) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let done = work();
    let peak = MEMORY.peak_usage().saturating_sub(before);
    (done, std::env::var_os("FUZZ_MEMORY").map(|_| peak))
}

/// A mutation of an input.
fn mutated(corpus: &[Vec<u8>], rng: &mut StdRng) -> Vec<u8> {
    let mut input = corpus[rng.random_range(0..corpus.len())].clone();
    for _ in 0..=rng.random_range(0..6_u8) {
        let at = rng.random_range(0..=input.len());
        let end = (at + rng.random_range(0..32_usize)).min(input.len());
        match rng.random_range(0..8_u8) {
            0 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8_u8),
            1 if at < input.len() => input[at] = rng.random(),
            2 => input.insert(at, rng.random()),
            3 => drop(input.drain(at..end)),
            4 => {
                let copy = input[at..end].to_vec();
                let times = 1 + rng.random_range(0..4_usize);
                drop(input.splice(at..at, copy.repeat(times)));
            }
            5 => {
                let other = &corpus[rng.random_range(0..corpus.len())];
                let from = rng.random_range(0..=other.len());
                let to = (from + rng.random_range(0..64_usize)).min(other.len());
                drop(input.splice(at..end, other[from..to].iter().copied()));
            }
            6 if rng.random_range(0..8_u8) == 0 => input.truncate(at),
            _ => drop(input.splice(at..at, TOKENS[rng.random_range(0..TOKENS.len())].iter().copied())),
        }
    }
    input.truncate(MAX_BYTES);
    input
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn inputs_differ_and_a_panic_is_passed_on() {
        let mut seen = BTreeSet::new();
        run("nothing", &[b"a", b"{}"], |input| {
            seen.insert(input.to_vec());
            true
        });
        assert!(seen.len() > 1_000, "{}", seen.len());
        let panics = || {
            run("nul", &[b"abc"], |input| {
                assert!(!input.contains(&0));
                true
            });
        };
        assert!(catch_unwind(panics).is_err());
        assert!(catch_unwind(|| run("no", &[b"abc"], |_| false)).is_err());
    }
}
