//! The controller's flags.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use http::Uri;
use ipnet::IpNet;
use server::log::Format;
use shared::duration::{parse_positive, parse_unsigned};
use shared::hive::decide::Settings;
use shared::kinds::operators::objects::{MemberObject, SHOOT_AT, VIRTUAL_MACHINE_AT};
use shared::kkp::phase::{Limited, Limits};
use strum::VariantNames as _;

use crate::cloud_registry::CloudFlags;
use crate::fleet::MemberKind;
use crate::spoke::{Dialer, Network, Threads};
use crate::systems::cgu::CguSettings;
use crate::systems::cgu::graph::Graphs;
use crate::systems::kkp::KkpSettings;

const AFTER_HELP: &str = "\
Examples:
  hibernate-controller                                   # in a Pod, with its service account
  hibernate-controller --kubeconfig hub.kubeconfig --identity laptop

Exit codes: 0 terminated by a signal, 1 error, 2 usage.";

/// Hibernates and resumes clusters according to their objects on the hub
#[derive(Clone, Debug, Parser)]
#[command(version, after_help = AFTER_HELP, args_override_self = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct Args {
    /// Kubeconfig of the hub; without it $KUBECONFIG, then the Pod's service account
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Namespace of the leader election Lease and of the records of rollouts
    #[arg(long, default_value = shared::annotation::keys::NAMESPACE)]
    pub namespace: String,
    /// Name of the leader election Lease
    #[arg(long, default_value = shared::annotation::keys::CONTROLLER)]
    pub lease: String,
    /// Identity in the Lease and in the cloud's call log [default: host name and a random suffix]
    #[arg(long)]
    pub identity: Option<String>,
    /// Duration of the lease: without a renewal, another controller may lead after this time
    #[arg(long, default_value = "15s", value_parser = parse_positive)]
    pub lease_duration: Duration,
    /// Without a renewal, this controller stops acting after this time; must be shorter than --lease-duration
    #[arg(long, default_value = "10s", value_parser = parse_positive)]
    pub renew_deadline: Duration,
    /// How often the Lease is renewed
    #[arg(long, default_value = "2s", value_parser = parse_positive)]
    pub retry_period: Duration,
    /// Address of /healthz, /readyz and /metrics (plain HTTP); [::] is every address, and where the kernel has no IPv6 0.0.0.0
    #[arg(long, default_value = "[::]:8080")]
    pub listen: SocketAddr,
    /// Folder that outlives the process, such as an emptyDir: a target whose reconcile has ended the process is not
    /// reconciled at once again
    #[arg(long, value_name = "PATH")]
    pub state_dir: Option<std::path::PathBuf>,
    /// Clusters of one namespace to reconcile concurrently, and half as many more over all namespaces; up to 200
    /// clusters of one AWS account share a call
    #[arg(long, default_value_t = 256)]
    pub concurrency: u16,
    /// How long to wait for cluster operators that have shown no sign of life since the wake
    #[arg(long, default_value = "2m", value_parser = parse_positive)]
    pub cluster_operator_pause: Duration,
    /// How long all cluster operators must stay healthy before a cluster counts as awake
    #[arg(long, default_value = "3s", value_parser = parse_positive)]
    pub cluster_operator_settle: Duration,
    /// How often to reconcile a cluster that is not in transition
    #[arg(long, default_value = "10m", value_parser = parse_positive)]
    pub steady_period: Duration,
    /// How long a wake may take before the controller emits a warning Event
    #[arg(long, default_value = "30m", value_parser = parse_positive)]
    pub wake_limit: Duration,
    /// How long a sleep may take before the controller emits a warning Event
    #[arg(long, default_value = "15m", value_parser = parse_positive)]
    pub sleep_limit: Duration,
    /// What to do about instances of a sleeping cluster that were started by another party
    #[arg(long, value_enum, default_value_t = Drift::Stop)]
    pub drift: Drift,
    /// The least that a kubelet's client certificate is still valid when its cluster falls asleep: after a shorter sleep
    /// no client certificate is approved
    #[arg(long, value_name = "DURATION", default_value = "2h", value_parser = parse_unsigned)]
    pub certificate_minimum_validity: Duration,
    /// Default minimum suspension for removed process groups of a FoundationDBCluster without the annotation
    /// hibernate.sh/minimum-suspension; 0 turns suspension off
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_unsigned)]
    pub fdb_minimum_suspension: Duration,
    /// Dehydrate and hydrate the user clusters of this KKP seed
    #[arg(long)]
    pub kkp: bool,
    /// Maximum number of user clusters to dehydrate concurrently
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub kkp_sleeps: u16,
    /// Maximum number of user clusters to hydrate concurrently; each counts towards KKP's own --max-parallel-reconcile
    /// until it is up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub kkp_wakes: u16,
    /// How long a phase may take before its condition names the blocker, as PHASE=DURATION; repeatable. Defaults:
    /// drain=10m attachments=5m machines=30m pause=2m control-plane=5m; etcd=5m api=10m nodes=20m
    #[arg(long = "kkp-limit", value_name = "PHASE=DURATION", value_parser = limit)]
    pub kkp_limits: Vec<(Limited, Duration)>,
    /// How long the rest of a user cluster's control plane stays at 0 replicas before etcd follows: KKP's reconciles in
    /// flight raise replicas again
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_positive)]
    pub kkp_settle: Duration,
    /// The worker-name of the KKP installation whose user clusters are served
    #[arg(long, value_name = "NAME", default_value = "")]
    pub kkp_worker_name: String,
    /// Further kinds that rollouts and schedules may have as targets; repeatable
    #[arg(long = "target-kind", value_name = "KIND", value_parser = MEMBERS.map(|(name, _)| name))]
    pub target_kinds: Vec<String>,
    /// Run the upgrades of TALM on this hub in its place. While TALM renews its Lease, nothing is written
    #[arg(long)]
    pub cgu: bool,
    /// How long a cluster has to run after a wake before an upgrade believes what it reports
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_unsigned)]
    pub cgu_settle: Duration,
    /// Namespace of TALM's Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "openshift-operators")]
    pub cgu_talm_namespace: String,
    /// The image that pulls images before an upgrade starts, as TALM has it in `PRECACHE_IMG`. Without it, upgrades with
    /// preCaching are not served
    #[arg(long, value_name = "IMAGE")]
    pub cgu_precache_image: Option<String>,
    /// Where the images of releases may be looked up: scheme and host of a URL; repeatable
    #[arg(long = "cgu-graph", value_name = "ORIGIN", default_value = "https://api.openshift.com", value_parser = origin)]
    pub cgu_graphs: Vec<Uri>,
    /// Maximum number of unfinished rollouts of one requester and action to work on; the oldest first, the others wait
    #[arg(long, value_name = "N", default_value = "50")]
    pub max_rollouts_per_requester: NonZeroUsize,
    /// Manage the condition Unreachable with hibernation taken into account; turn off Hive's own unreachable controller
    /// first
    #[arg(long)]
    pub own_unreachable: bool,
    /// Network of which no address is dialed for a spoke, besides those that are always denied; repeatable
    #[arg(long = "deny-spoke-cidr", value_name = "CIDR")]
    pub denied_spoke_networks: Vec<IpNet>,
    /// Dial spokes at loopback addresses, for tests
    #[arg(long, hide = true)]
    pub allow_loopback_spokes: bool,
    /// Network of which no address is dialed for a cloud whose URL is in a cluster's Secret, besides those that are
    /// always denied; repeatable
    #[arg(long = "deny-cloud-cidr", value_name = "CIDR")]
    pub denied_cloud_networks: Vec<IpNet>,
    /// Dial clouds at loopback addresses, for tests
    #[arg(long, hide = true)]
    pub allow_loopback_clouds: bool,
    /// Flags of the clouds
    #[command(flatten)]
    pub clouds: CloudFlags,
    /// Format of the log lines
    #[arg(long, value_enum, default_value_t)]
    pub log_format: Format,
}

/// Resource name and constructor.
type Operators = (&'static str, fn() -> MemberKind);

/// Kinds that `--target-kind` accepts.
const MEMBERS: [Operators; 2] =
    [("virtualmachines.kubevirt.io", member::<VIRTUAL_MACHINE_AT>), ("shoots.core.gardener.cloud", member::<SHOOT_AT>)];

fn member<const AT: usize>() -> MemberKind {
    MemberKind::of::<MemberObject<AT>>(MemberObject::<AT>::ROW)
}

impl Args {
    /// The kinds of `--target-kind`.
    pub fn members(&self) -> impl Iterator<Item = MemberKind> {
        MEMBERS.into_iter().filter(|(name, _)| self.target_kinds.iter().any(|kind| kind == name)).map(|(_, of)| of())
    }

    /// How spokes are reached.
    pub fn network(&self, threads: Threads) -> Network {
        let dialer = Dialer::new(self.denied_spoke_networks.clone(), self.allow_loopback_spokes);
        Network { dialer, threads, ..Network::default() }
    }

    /// Which addresses are dialed for clouds whose URLs tenants choose.
    pub fn cloud_dialer(&self) -> Dialer {
        Dialer::new(self.denied_cloud_networks.clone(), self.allow_loopback_clouds)
    }

    /// What the operator of a KKP seed decides.
    pub fn kkp_settings(&self) -> KkpSettings {
        let mut limits = Limits::default();
        self.kkp_limits.iter().for_each(|(limited, limit)| limits[*limited] = *limit);
        limits.settle = self.kkp_settle;
        let worker_name = self.kkp_worker_name.clone();
        KkpSettings { limits, sleeps: self.kkp_sleeps.into(), wakes: self.kkp_wakes.into(), worker_name }
    }

    /// What upgrades depend on.
    pub fn cgu_settings(&self) -> Arc<CguSettings> {
        Arc::new(CguSettings {
            settle: self.cgu_settle,
            talm_namespace: self.cgu_talm_namespace.clone(),
            precache_image: self.cgu_precache_image.clone(),
            graphs: Graphs::new(self.cgu_graphs.clone()),
        })
    }

    /// What decisions depend on.
    pub fn settings(&self) -> Settings {
        Settings {
            operator_pause: self.cluster_operator_pause,
            operator_settle: self.cluster_operator_settle,
            steady: self.steady_period,
            wake_limit: self.wake_limit,
            sleep_limit: self.sleep_limit,
            stops_drift: matches!(self.drift, Drift::Stop),
            certificate_minimum_validity: self.certificate_minimum_validity,
        }
    }
}

/// What happens to instances of a sleeping cluster that another party has started.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Drift {
    /// Report and stop them, as Hive does.
    Stop,
    /// Report them.
    Report,
}

/// `SCHEME://HOST`
fn origin(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|_| format!("{text:?} is no URL: write https://HOST"))?;
    let is_origin = uri.scheme().is_some() && uri.authority().is_some() && uri.path() == "/" && uri.query().is_none();
    if is_origin { Ok(uri) } else { Err(format!("{text:?} is no origin: write https://HOST, without a path")) }
}

/// `PHASE=DURATION`.
fn limit(text: &str) -> Result<(Limited, Duration), String> {
    let (phase, limit) =
        text.split_once('=').ok_or_else(|| format!("{text:?} is not PHASE=DURATION, such as drain=15m"))?;
    let phase = phase.parse().map_err(|_| format!("{phase:?} is no phase: {}", Limited::VARIANTS.join(", ")))?;
    Ok((phase, parse_positive(limit).map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_sound() {
        Args::command().debug_assert();
        assert!(Args::try_parse_from(["c", "--lease-duration", "0s"]).is_err());
        let args = Args::try_parse_from(["c", "--kkp", "--kkp-limit", "control-plane=7m", "--kkp-wakes", "3"]).unwrap();
        let settings = args.kkp_settings();
        assert_eq!((settings.limits[Limited::ControlPlane], settings.wakes), (Duration::from_mins(7), 3));
        assert_eq!(settings.limits[Limited::Drain], Limits::default()[Limited::Drain]);
        for wrong in ["drain", "drain=", "drain=0s", "lunch=5m"] {
            assert!(Args::try_parse_from(["c", "--kkp-limit", wrong]).is_err(), "{wrong}");
        }
        let settings = |args: &[&str]| Args::try_parse_from(args).unwrap().settings();
        assert_eq!(settings(&["c"]).certificate_minimum_validity, Duration::from_hours(2));
        let never = settings(&["c", "--certificate-minimum-validity", "87600h"]); // docs/certificates.md
        assert_eq!(never.certificate_minimum_validity, Duration::from_hours(87_600));
        let twice =
            Args::try_parse_from(["c", "--listen=[::]:8080", "--kkp", "--listen=127.0.0.1:1", "--kkp"]).unwrap();
        assert_eq!((twice.listen, twice.kkp), ("127.0.0.1:1".parse().unwrap(), true), "the last one counts");
        let args = Args::try_parse_from(["c", "--cgu-graph", "https://a.test:8443"]).unwrap();
        assert_eq!(args.cgu_graphs[0].host(), Some("a.test"));
        for wrong in ["api.openshift.com", "https://a.test/graph", "https://", "a b"] {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
        let (form, phase) = (limit("drain").unwrap_err(), limit("lunch=5m").unwrap_err());
        assert!(limit(form.split_once("such as ").unwrap().1).is_ok(), "{form}");
        for known in phase.split_once("no phase: ").unwrap().1.split(", ") {
            assert!(limit(&format!("{known}=5m")).is_ok(), "{known}: {phase}");
        }
        assert_eq!(
            Args::try_parse_from(["c", "--cluster-operator-pause", "1m30s"]).unwrap().cluster_operator_pause.as_secs(),
            90
        );
    }
}
