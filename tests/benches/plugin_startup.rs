//! How long one state change takes: our plugin against `kubectl patch`, turn by turn in one run, on a real API server.
//!
//! Run with `make bench`. Prints a table and the ratio of the medians; asserts nothing.

use std::time::Duration;

use anyhow::Result;
use testbed::{ClusterOptions, Options, Program, World};

const ROUNDS: usize = 25;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // Without the controller: nothing but the two clients and the API server is at work. With the webhook: both pay for
    // it.
    let world = World::up(Options { clusters: 0, without: vec![Program::Controller], ..Options::default() }).await?;
    let cluster =
        world.cluster("bench", ClusterOptions { workers: 0, control_plane: 1, ..ClusterOptions::default() }).await?;
    let (name, namespace) = (cluster.name(), cluster.namespace());
    let target = format!("clusterdeployment/{name}");

    let (mut kubectl, mut plugin, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for state in ["Hibernating", "Running"] {
            let patch = format!(r#"{{"spec":{{"powerState":"{state}"}}}}"#);
            let ran = world
                .kubectl(&["patch", "clusterdeployment", name, "-n", namespace, "--type=merge", "-p", &patch])
                .await?;
            kubectl.push(ran.duration);
            ran.ok()?;
        }
        for (verb, times) in [("hibernate", &mut plugin), ("resume", &mut bare)] {
            let args: &[&str] =
                if verb == "resume" { &["resume", &target, "-n", namespace] } else { &[&target, "-n", namespace] };
            let ran = world.plugin(args).await?;
            times.push(ran.duration);
            ran.ok()?;
        }
    }
    plugin.append(&mut bare);

    println!("one change of powerState, {} each, in turn, API server and webhook on the same machine", plugin.len());
    println!("{:<22} {:>8} {:>8} {:>8}", "client", "min", "median", "max");
    let reference = row("kubectl patch", &mut kubectl);
    let ours = row("kubectl-hibernate", &mut plugin);
    println!("ratio of the medians: {:.2}", ours.as_secs_f64() / reference.as_secs_f64());
    Ok(())
}

fn row(name: &str, times: &mut [Duration]) -> Duration {
    times.sort();
    let [min, median, max] = [0, times.len() / 2, times.len() - 1].map(|at| times[at]);
    println!("{name:<22} {:>5} ms {:>5} ms {:>5} ms", min.as_millis(), median.as_millis(), max.as_millis());
    median
}
