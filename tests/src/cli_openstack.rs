//! `testbed openstack`: what the services hold, faults, and how often they were called.

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::Value;
use testbed::World;
use testbed::openstack::SERVICES;
use testbed::proxy::faults::{Effect, Rule};

/// ID of the rule that counts.
const CALLS: &str = "calls";

#[derive(Subcommand)]
pub(crate) enum OpenStack {
    /// Show servers, ports, floating IPs and images of the clusters' project
    Show,
    /// Let a service fail: testbed openstack fault nova --method DELETE --effect 503 --count 3
    Fault(Fault),
    /// Remove the faults of every service
    Heal,
    /// Count the controller's calls to each service since this was asked last
    Calls,
}

#[derive(Args)]
pub(crate) struct Fault {
    /// keystone, placement, glance, neutron or nova
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(SERVICES))]
    service: String,
    /// HTTP status, hang, cut (no answer, nothing done) or lost (done, no answer)
    #[arg(long, default_value = "503", value_parser = effect)]
    effect: Effect,
    /// HTTP method [default: all]
    #[arg(long)]
    method: Option<String>,
    /// Beginning of the path; with `*` in it, a pattern for the whole path [default: all]
    #[arg(long)]
    path: Option<String>,
    /// How many requests fail [default: all]
    #[arg(long)]
    count: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Word {
    Hang,
    Cut,
    Lost,
}

fn effect(text: &str) -> Result<Effect, String> {
    if let Ok(code) = text.parse() {
        return Ok(Effect::Status { code, retry_after: None, message: None });
    }
    Ok(match Word::from_str(text, false).map_err(|_| "an HTTP status, hang, cut or lost".to_owned())? {
        Word::Hang => Effect::Hang,
        Word::Cut => Effect::Cut { after_upstream: false },
        Word::Lost => Effect::Cut { after_upstream: true },
    })
}

/// Runs a subcommand and prints what came of it.
pub(crate) async fn run(world: &World, command: OpenStack) -> Result<()> {
    match command {
        OpenStack::Show => show(world).await?,
        OpenStack::Fault(Fault { service, effect, method, path, count }) => {
            let rule = Rule { method, path, count, ..Rule::new(effect).user_agent("hibernate-controller/") };
            println!("{}", serde_json::to_string(&world.inject(&service, &rule).await?)?);
        }
        OpenStack::Heal => {
            for service in SERVICES {
                world.heal(service, None).await?;
            }
        }
        OpenStack::Calls => {
            for service in SERVICES {
                let hits = world
                    .hits(service, CALLS)
                    .await
                    .map_or_else(|_| "not counted yet".to_owned(), |hits| hits.to_string());
                println!("{service:<10} {hits}");
                world.heal(service, Some(CALLS)).await?;
                let rule = Rule { id: CALLS.to_owned(), ..Rule::new(Effect::default()) };
                world.inject(service, &rule.user_agent("hibernate-controller/")).await?;
            }
        }
    }
    Ok(())
}

async fn show(world: &World) -> Result<()> {
    let demo = world.openstack("demo").await?;
    let lists = [
        ("compute", "/servers/detail", "servers", "status", "name"),
        ("network", "/v2.0/ports", "ports", "status", "name"),
        ("network", "/v2.0/floatingips", "floatingips", "status", "floating_ip_address"),
        ("image", "/v2/images", "images", "status", "name"),
    ];
    for (service, path, list, status, name) in lists {
        println!("{}", list.to_uppercase());
        let found = demo.call(service, Method::GET, path, None).await?;
        for item in found[list].as_array().into_iter().flatten() {
            let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
            let task = item["OS-EXT-STS:task_state"].as_str().map(|task| format!(" ({task})")).unwrap_or_default();
            let of = Value::as_str(&item["device_id"]).filter(|of| !of.is_empty());
            let of = of.map(|of| format!("  of {of}")).unwrap_or_default();
            println!("  {}  {:<16} {}{of}", text("id"), text(status) + &task, text(name));
        }
    }
    Ok(())
}
