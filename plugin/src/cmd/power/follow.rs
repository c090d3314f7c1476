//! What is waited for after the targets of a stage were written.

use std::time::{Duration, Instant};

use hub::HubClient;
use shared::power::Power;

use super::report::Done;
use crate::cli::ActArgs;
use crate::cmd::power_plan::PowerRequest;
use crate::error::Exit;
use crate::wait::{self, Request, Waiting};

/// How long a stage of a namespace is waited for before the next one.
const STAGE: Duration = Duration::from_mins(5);
/// The same without `--wait`.
const STAGE_BRIEFLY: Duration = Duration::from_secs(10);

/// What was written and has not arrived.
pub(super) struct Follower<'a> {
    hub: &'a HubClient,
    args: &'a ActArgs,
    power: Power,
    /// When `--timeout` has passed.
    end: Option<Instant>,
    /// [`STAGE`], but in tests.
    stage_limit: Duration,
    /// Each with the begin of its stage.
    open: Vec<(Done, Instant)>,
}

impl<'a> Follower<'a> {
    /// `begin`: from when on `--timeout` counts.
    pub(super) fn new(PowerRequest { hub, args, intent, .. }: PowerRequest<'a>, begin: Instant) -> Self {
        let end = args.timeout.0.and_then(|limit| begin.checked_add(limit));
        Self { hub, args, power: intent.power, end, stage_limit: STAGE, open: Vec::new() }
    }

    /// Waits for a stage, and returns the exit codes of what failed. What does not come in time is followed while the
    /// next stages go on, and judged with the last one: half asleep is better than all awake.
    pub(super) async fn stage(&mut self, done: Vec<Done>, begin: Instant, is_last: bool) -> Vec<Exit> {
        let args = self.args;
        if !args.write.changes() || !args.wait && is_last {
            return Vec::new();
        }
        let late = self.open.len();
        self.open.extend(done.into_iter().filter(|done| done.will_reach).map(|done| (done, begin)));
        let all = self.open.iter().enumerate();
        let waiting: Vec<_> = all.map(|(at, open)| self.waiting(open, at < late, is_last)).collect();
        if !args.wait {
            wait::briefly(self.hub, &waiting, STAGE_BRIEFLY).await;
            self.open.clear();
            return Vec::new();
        }
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        let limit = if is_last { left } else { Some(left.unwrap_or(self.stage_limit).min(self.stage_limit)) };
        let (exits, open) = wait::all(self.hub, &waiting, limit, is_last, args.write.output.is_some()).await;
        let mut at = 0..;
        self.open.retain(|_| at.next().is_some_and(|at| open.contains(&at)));
        exits
    }

    /// `is_late`: written in an earlier stage, which did not come in time.
    fn waiting<'b>(&self, (done, begin): &'b (Done, Instant), is_late: bool, is_last: bool) -> Waiting<'b> {
        let Done { target, changed, requested, .. } = done;
        let limit = self.end.map(|end| end.saturating_duration_since(*begin));
        Waiting {
            target,
            action: self.power,
            begin: *begin,
            changed: *changed || is_late,
            request: requested.map(|at| Request::new(at, limit)),
            is_followed: is_late && !is_last,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use shared::kinds::Intent;
    use shared::kinds::testing::{POWER, SANDBOX};
    use tokio::time::timeout;
    use view::target::Target;

    use super::*;
    use crate::cli::Cli;
    use crate::cmd::tests::{Server, wait_for};
    use crate::connect::connect;

    fn sandbox(name: &str, phase: &str) -> Value {
        let annotations = json!({ POWER: Power::Hibernating });
        json!({ "metadata": { "name": name, "annotations": annotations }, "status": { "phase": phase } })
    }

    /// The objects that the hub has from now on.
    fn stands(server: &Server, objects: &[Value]) {
        let list = json!({ "metadata": { "resourceVersion": "1" }, "items": objects });
        server.answers("GET /apis/test.hibernate.sh/v1/sandboxes", 200, list);
    }

    fn written(name: &str) -> Vec<Done> {
        vec![Done::written(Target::new(&SANDBOX, "v1", sandbox(name, "Running")), String::new())]
    }

    fn follow<T>(cli: &Cli, work: impl AsyncFnOnce(Follower<'_>) -> T) -> T {
        let (power, now) = (Power::Hibernating, Timestamp::UNIX_EPOCH);
        let intent = Intent { power, reason: None, end: None, now, queried: true, force: false };
        wait_for(async {
            let hub = connect(&cli.hub).unwrap();
            let request = PowerRequest { hub: &hub, args: &cli.sleep.act, intent: &intent, labels: "" };
            work(Follower::new(request, Instant::now())).await
        })
    }

    #[test]
    fn what_is_late_holds_up_no_stage_and_is_judged_with_the_last_one() {
        let server = Server::start();
        for (red, expected) in [("Paused", vec![]), ("Running", vec![Exit::TimedOut])] {
            let line = if expected.is_empty() { "sbx/red --wait" } else { "sbx/red --wait --timeout 4s" };
            stands(&server, &[sandbox("red", "Running")]);
            let exits = follow(&server.cli(line), async |mut follower| {
                follower.stage_limit = Duration::from_millis(300);
                assert!(follower.stage(written("red"), Instant::now(), false).await.is_empty(), "{red}");
                assert_eq!(follower.open.len(), 1, "{red}");

                follower.stage_limit = STAGE;
                stands(&server, &[sandbox("red", "Running"), sandbox("green", "Paused")]);
                let second = follower.stage(written("green"), Instant::now(), false);
                assert!(timeout(Duration::from_secs(20), second).await.expect("green is there").is_empty(), "{red}");
                assert_eq!(follower.open.len(), 1, "{red}");

                stands(&server, &[sandbox("red", red), sandbox("blue", "Paused")]);
                let third = follower.stage(written("blue"), Instant::now(), true);
                timeout(Duration::from_secs(20), third).await.expect("it ends")
            });
            assert_eq!(exits, expected, "{red}");
        }
    }

    #[test]
    fn a_timeout_counts_for_all_stages() {
        let server = Server::start();
        stands(&server, &[sandbox("red", "Running"), sandbox("green", "Running")]);
        let (begin, limit) = (Instant::now(), Duration::from_secs(2));
        let exits = follow(&server.cli("sbx/red --wait --timeout 2s"), async |mut follower| {
            let mut exits = follower.stage(written("red"), Instant::now(), false).await;
            exits.extend(follower.stage(written("green"), Instant::now(), true).await);
            exits
        });
        assert_eq!(exits, [Exit::TimedOut, Exit::TimedOut]);
        assert!((limit..2 * limit).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    }
}
