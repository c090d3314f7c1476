//! The FoundationDB operator's `FoundationDBCluster`.

use serde_json::{Value, json};

/// The definition with the fields that we or the test world's double of the operator read and write.
pub(super) fn cluster() -> Value {
    let version = json!({
        "name": "v1beta2",
        "served": true,
        "storage": true,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns(),
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": spec(), "status": status()},
        }},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foundationdbclusters.apps.foundationdb.org"},
        "spec": {
            "group": "apps.foundationdb.org",
            "names": {
                "kind": "FoundationDBCluster",
                "listKind": "FoundationDBClusterList",
                "plural": "foundationdbclusters",
                "singular": "foundationdbcluster",
                "shortNames": ["fdb"],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    })
}

fn columns() -> Value {
    let column = |name: &str, type_: &str, path: &str, description: &str| json!({"name": name, "type": type_, "jsonPath": path, "description": description});
    json!([
        column("Generation", "integer", ".metadata.generation", "Latest generation of the spec"),
        column("Reconciled", "integer", ".status.generations.reconciled", "Last reconciled generation of the spec"),
        column("Available", "boolean", ".status.health.available", "Database available"),
        column("FullReplication", "boolean", ".status.health.fullReplication", "Database fully replicated"),
    ])
}

fn text() -> Value {
    json!({"type": "string"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn number() -> Value {
    json!({"type": "integer"})
}

fn texts() -> Value {
    json!({"type": "array", "items": text()})
}

/// IDs of process groups, at most so many.
fn group_ids(most: u32) -> Value {
    json!({"type": "array", "maxItems": most, "items": group_id()})
}

fn group_id() -> Value {
    json!({"type": "string", "maxLength": 63, "pattern": r"^(([\w-]+)-(\d+)|\*)$"})
}

fn open(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": true})
}

fn spec() -> Value {
    let mode = json!({"type": "string", "enum": ["All", "Zone", "ProcessGroup", "None"], "default": "Zone"});
    let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let mut spec = open(&json!({
        "version": {"type": "string", "pattern": r"(\d+)\.(\d+)\.(\d+)"},
        "skip": {"type": "boolean", "default": false},
        "processGroupIDPrefix":
            {"type": "string", "maxLength": 43, "pattern": r"^[a-z0-9A-Z]([\-._a-z0-9A-Z])*[a-z0-9A-Z]$"},
        "processGroupsToRemove": group_ids(500),
        "processGroupsToRemoveWithoutExclusion": group_ids(500),
        "processCounts": open(&json!({
            "storage": number(), "log": number(), "transaction": number(), "coordinator": number(), "stateless": number(),
            "cluster_controller": number(),
        })),
        "labels": open(&json!({
            "matchLabels": labels, "resourceLabels": labels, "processGroupIDLabels": texts(), "processClassLabels": texts(),
        })),
        "routing": open(&json!({"publicIPSource": text(), "useDNSInClusterFile": flag(), "headlessService": flag()})),
        "automationOptions": open(&json!({
            "removalMode": mode,
            "waitBetweenRemovalsSeconds": number(),
            "useLocalitiesForExclusion": flag(),
            "replacements": open(&json!({"enabled": flag(), "failureDetectionTimeSeconds": number()})),
        })),
        "buggify": open(&json!({"blockRemoval": group_ids(1000)})),
        "databaseConfiguration": open(&json!({
            "redundancy_mode":
                {"type": "string", "enum": ["single", "double", "triple", "three_data_hall"], "maxLength": 100},
        })),
    }));
    spec["required"] = json!(["version"]);
    spec
}

fn status() -> Value {
    let time = json!({"type": "string", "format": "date-time"});
    let generation = json!({"type": "integer", "format": "int64"});
    let group = open(&json!({
        "processGroupID": group_id(),
        "processClass": text(),
        "addresses": texts(),
        "removalTimestamp": time,
        "exclusionTimestamp": time,
        "exclusionSkipped": flag(),
        "faultDomain": {"type": "string", "maxLength": 512},
        "processGroupConditions": {"type": "array", "items": open(&json!({"timestamp": generation}))},
    }));
    open(&json!({
        "processGroups": {"type": "array", "items": group},
        "generations": open(&json!({
            "reconciled": generation, "hasPendingRemoval": generation, "needsShrink": generation, "needsGrow": generation,
        })),
        "health": open(&json!({"available": flag(), "healthy": flag(), "fullReplication": flag(), "dataMovementPriority": number()})),
        "configured": flag(),
        "runningVersion": text(),
        "connectionString": text(),
        "desiredProcessGroups": number(),
        "reconciledProcessGroups": number(),
    }))
}
