//! The longer texts of `--help`.
//!
//! A paragraph is one line: clap fills it to the width of the terminal. Lines of lists and examples fit into 80 columns, because
//! clap would break them anywhere. [`super::filled`] checks both.

/// Begins the help of the program.
pub(crate) const ABOUT: &str = "\
Put clusters and workloads to sleep, and wake them.

A ClusterDeployment gets spec.powerState, which Hive or hibernate-controller acts on. A workload gets 0 replicas, with the \
former count recorded in the annotation hibernate.sh/replicas in the same write.";

/// Ends the help of every command.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done, or nothing to do
  1  error
  2  wrong usage
  3  refused: by a webhook, a policy, the schema, or a workload's protection
  4  timed out while waiting
  When several targets fail for different reasons, the exit code is 1.";

/// How targets are named.
pub(crate) const TARGETS: &str = "\
Targets:
  NAME          of any type on the hub, if only one target has this name
  TYPE/NAME     such as cd/demo, deploy/web, sts/db, machinedeployment/workers
  TYPE NAME...  the same for several names
  TYPE          with --all or -l SELECTOR; ClusterDeployments if there is no TYPE

  Types: clusterdeployment (cd), deployment (deploy), statefulset (sts), machinedeployment (md), each also with its group, as in \
machinedeployment.cluster.x-k8s.io";

/// Of the bare form.
pub(crate) const HIBERNATE_EXAMPLES: &str = "\
Examples:
  # Put a cluster to sleep and say why
  kubectl hibernate demo --reason \"weekend\"

  # Put it to sleep, and wait until its machines are stopped
  kubectl hibernate cd/demo --wait --timeout 20m

  # Put it to sleep for the night: hibernate-controller wakes it again
  kubectl hibernate demo --for 14h
  kubectl hibernate demo --until \"tomorrow 08:00\"

  # Let it sleep on: take that wake off again
  kubectl annotate clusterdeployment demo hibernate.sh/wake-at-

  # Put workloads to sleep; their replica counts are recorded
  kubectl hibernate deploy/web sts/db machinedeployment/workers -n shop

  # Put all clusters of a team to sleep, in all namespaces
  kubectl hibernate -l team=blue -A --yes

  # Wake the cluster
  kubectl hibernate resume demo --wait

  # See what sleeps, since when, who asked for it and why
  kubectl hibernate status

A target that has the name of a command is given as TYPE/NAME. Flags must come after `hibernate`: kubectl does not pass on what \
stands before a plugin's name (`kubectl -n shop hibernate web` fails, `kubectl hibernate web -n shop` works).";

/// Of `resume`.
pub(crate) const RESUME_EXAMPLES: &str = "\
Examples:
  # Wake a cluster and wait until it is ready
  kubectl hibernate resume demo --wait

  # Wake it, and let nobody put it to sleep before the demonstration is over
  kubectl hibernate resume demo --hold-awake --until 18:00 --reason \"demo day\"

  # Wake workloads with as many replicas as were recorded
  kubectl hibernate resume deploy/web sts/db -n shop

  # Wake all ClusterDeployments of a namespace
  kubectl hibernate wake --all -n clusters --yes";

/// Of `plan`, with the form of its JSON.
pub(crate) const PLAN_EXAMPLES: &str = "\
Examples:
  # What would block or slow the sleep of a cluster, and what stays billed
  kubectl hibernate plan demo

  # The same after a new look at the cloud and at the cluster
  kubectl hibernate plan demo --fresh

  # Whether certificates last through a sleep of two weeks
  kubectl hibernate plan demo --for 336h

  # The clusters of a team that cannot be put to sleep
  kubectl hibernate plan -l team=blue -A -o json |
    jq '.items[] | select(.verdict == \"Blocked\") | .name'

Only the hub is asked, and nothing is changed: what the webhook would say comes from a dry run. What the cloud and the cluster \
say was found by hibernate-controller, at the time shown; it looks at awake clusters every hour, and at any cluster when --fresh \
asks (by the annotation hibernate.sh/preflight-requested-at). The exit code is 3 if anything blocks, 4 if --fresh got no answer.

Codes such as V6 are the rules of the admission webhook; Refused and HubWarns are other words of the hub, HubNotAsked says that \
you may not make the dry run, and WebhookDown that nobody answers for the webhook.

JSON and YAML are a list in a form of its own that later versions only add to:
  {\"apiVersion\": \"hibernate.sh/v1alpha1\", \"kind\": \"PlanList\", \"items\": [{
     \"type\", \"namespace\", \"name\", \"desired\", \"observed\"
     \"verdict\"      Blocked, Slowed or Clear
     \"until\"        the end of the planned sleep, if --for or --until gave one
     \"foundAt\"      when hibernate-controller last looked
     \"findings\": [{\"severity\": block, warn or info, \"code\",
                   \"source\": hub or controller, \"message\"}]
  }]}";

/// Of `status`, with the form of its JSON.
pub(crate) const STATUS_EXAMPLES: &str = "\
Examples:
  # All ClusterDeployments of the namespace
  kubectl hibernate status

  # Of all namespaces, with platform, region and hibernateAfter
  kubectl hibernate status -A -o wide

  # Deployments that sleep
  kubectl hibernate status deploy -n shop

  # One target, followed until interrupted
  kubectl hibernate status cd/demo --watch

  # A FoundationDBCluster: its health, and the process groups that are suspended
  kubectl hibernate status fdb/sample

  # A ClusterPool: its numbers, its clusters, and which of them it keeps awake
  kubectl hibernate status pool/small -n pools

JSON and YAML are a list in a form of its own that later versions only add to:
  {\"apiVersion\": \"hibernate.sh/v1alpha1\", \"kind\": \"TargetStatusList\",
   \"items\": [{
     \"type\", \"namespace\", \"name\"  the target
     \"desired\"                    Running or Hibernating
     \"observed\"                   its power state, in its own system's words;
                                  empty when nothing is known
     \"since\"                      when that began, RFC 3339
     \"requestedBy\", \"requestedAt\", \"reason\"
     \"step\": {\"reason\", \"message\", \"failed\"}  while something is going on
     \"instances\": {\"total\", \"awaited\"}        as far as the conditions tell
     \"platform\", \"region\", \"hibernateAfter\", \"firesAt\"  ClusterDeployments
     \"wakeAt\", \"holdAwakeUntil\", \"holdAwakeBy\"        ClusterDeployments
     \"replicas\", \"recordedReplicas\"                    workloads
     \"protected\"
  }]}

Of pools it is a PoolStatusList, whose items have \"namespace\", \"name\", \"size\", \"runningCount\", \"maxSize\", \
\"hibernateAfter\", \"standby\", \"ready\", \"waitingClaims\" and \"clusters\": items as above with \"claim\" and \"poolWants\".

Of FoundationDBClusters it is a FoundationDBStatusList, whose items have \"namespace\", \"name\", \"protected\" (yes, no or \
unknown), \"unprotectedBecause\", \"unlocked\" (volumes in use with the key on them), \"minimumSuspension\", \"skipped\", \
\"recovering\", \"health\": {\"available\", \"healthy\", \"fullReplication\"} and \"suspended\": [{\"group\", \"class\", \"zone\", \
\"since\", \"expires\", \"released\", \"why\", \"claim\", \"size\"}].

With --watch, JSON and YAML print one such item per change. Fields without a value are left out.";

/// Of `recover process-groups`, under both names.
pub(crate) const RECOVER_EXAMPLES: &str = "\
Examples:
  # What is suspended, and until when
  kubectl hibernate status fdb/sample

  # What would be done
  kubectl hibernate recover process-groups -c sample storage-1 --dry-run

  # Bring a storage group back, on its old volume
  kubectl hibernate recover process-groups -c sample storage-1

  # The same by the name that its Pod had, and as FoundationDB's own plugin
  kubectl hibernate recover process-groups sample-storage-1
  kubectl fdb recover process-groups sample-storage-1

  # Everything that is suspended, or all of one class, without a question
  kubectl hibernate recover process-groups -c sample --all-suspended --yes
  kubectl hibernate recover process-groups -c sample --process-class log --yes

  # Raised processCounts first, or know which group is to go in exchange
  kubectl hibernate recover process-groups -c sample storage-1 \\
    --replacement none
  kubectl hibernate recover process-groups -c sample storage-1 \\
    --replacement storage-98765

What it does, under spec.skip so that the operator does not interfere: holds the PersistentVolumeClaim and the Service anew; takes \
the ID out of processGroupsToRemove and processGroupsToRemoveWithoutExclusion and puts the group that had replaced it in; takes \
the marks of the removal out of the status; runs `fdbcli --exec 'include ...'` in a Pod of the cluster; creates a missing \
Service; looks whether everything was kept; ends spec.skip; waits for the Pod on its old volume; takes its own annotations off.

Running the same again finishes what was interrupted.";

/// Of `install-alias`.
pub(crate) const ALIAS_EXAMPLES: &str = "\
Examples:
  # A link kubectl-fdb-recover beside this program
  kubectl hibernate install-alias

  # In a folder of your own on PATH
  kubectl hibernate install-alias ~/bin

`kubectl fdb recover process-groups ...` then runs this program, and every other `kubectl fdb ...` still runs FoundationDB's own \
plugin.";

/// Of `completion`.
pub(crate) const COMPLETION_EXAMPLES: &str = "\
Examples:
  # Let kubectl 1.26 and later complete `kubectl hibernate ...`: write
  # kubectl_complete-hibernate next to this program
  kubectl hibernate completion --install

  # Print that script, for a folder of your own on PATH
  kubectl hibernate completion > ~/bin/kubectl_complete-hibernate
  chmod +x ~/bin/kubectl_complete-hibernate

  # Complete `kubectl-hibernate` itself in bash
  source <(kubectl hibernate completion bash)";
