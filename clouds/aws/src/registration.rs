//! AWS as the controller registers it: its flags, its Secrets, and its part of a cluster's spec.

use std::sync::Arc;

use cloud_common::{Access, Platform, Process, SecretData};
use futures::FutureExt;
use futures::future::BoxFuture;
use shared::cloud::{CloudError, CloudErrorKind, Driver};
use shared::hive::api::{AssumeRole, ClusterDeployment};

use crate::call::Call;
use crate::client::Options;
use crate::credentials::Source;
use crate::pool::Pool;
use crate::quota::Quota;

/// The controller's flags for AWS.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AwsFlags {
    /// Namespace whose clusters without a credentials Secret may use this process's own AWS credentials; repeatable
    #[arg(long = "own-aws-credentials-in", value_name = "NAMESPACE")]
    pub own_aws_credentials_in: Vec<String>,
    /// Secret with the service provider's AWS credentials, used to assume the roles in credentialsAssumeRole: the name in HiveConfig's
    /// spec.serviceProviderCredentialsConfig.aws.credentialsSecretRef
    #[arg(long, value_name = "NAME")]
    pub aws_service_provider_secret: Option<String>,
    /// Namespace of that Secret: the one Hive runs in
    #[arg(long, value_name = "NAMESPACE", default_value = "hive")]
    pub aws_service_provider_secret_namespace: String,
    /// EC2 and STS endpoint to use instead of the AWS endpoints
    #[arg(long, value_name = "URL")]
    pub aws_endpoint_url: Option<String>,
    /// EC2 quota that AWS has raised for the accounts; repeatable. BURST tokens at once, RATE tokens a second; NAME is one of
    /// describe-requests, start-requests, start-instances, stop-requests, stop-instances, terminate-requests, terminate-instances
    #[arg(long = "aws-quota", value_name = "NAME=BURST/RATE")]
    pub aws_quota: Vec<Quota>,
}

/// The platform `aws`.
pub struct Aws {
    pool: Pool,
    flags: AwsFlags,
}

/// A role to assume, and the region of the machines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    /// ARN and external ID.
    role: Option<(String, Option<String>)>,
    region: String,
}

impl Platform for Aws {
    const NAME: &'static str = "aws";
    type Flags = AwsFlags;
    type Account = Account;

    fn api_call(call: &'static str) -> Option<&'static str> {
        Some(match call {
            "list" => "DescribeInstances",
            "start" => Call::Start.name(),
            "stop" => Call::Stop.name(),
            "terminate" => Call::Terminate.name(),
            other => other,
        })
    }

    fn new(flags: &AwsFlags, process: &Process) -> Self {
        let options = Options {
            endpoint_url: flags.aws_endpoint_url.clone(),
            process: process.clone(),
            quotas: flags.aws_quota.clone(),
        };
        Self { pool: Pool::new(options), flags: flags.clone() }
    }

    /// As Hive chooses: the cluster's own Secret, otherwise a role, otherwise what the process has.
    fn access(&self, cluster: &ClusterDeployment) -> Result<Access<Account>, CloudError> {
        let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
        let Some(aws) = &cluster.spec.platform.aws else {
            return Err(CloudError {
                kind: CloudErrorKind::Invalid,
                message: "spec.platform.aws is missing".to_owned(),
            });
        };
        let region = aws.region.clone();
        if let Some(secret) = aws.credentials_secret_ref.as_ref().filter(|secret| !secret.name.is_empty()) {
            let secret = Some((namespace, secret.name.clone()));
            return Ok(Access { secret, account: Account { role: None, region } });
        }
        let own = self.flags.own_aws_credentials_in.contains(&namespace);
        match &aws.credentials_assume_role {
            Some(role) => {
                let secret = self.service_provider();
                if secret.is_none() && !own {
                    return Err(refused(
                        "spec.platform.aws.credentialsAssumeRole needs the service provider's credentials: start the \
                         controller with --aws-service-provider-secret, as HiveConfig names it in \
                         spec.serviceProviderCredentialsConfig.aws.credentialsSecretRef",
                    ));
                }
                Ok(Access { secret, account: Account { role: Some(arn_and_id(role)?), region } })
            }
            None if own => Ok(Access { secret: None, account: Account { role: None, region } }),
            None => Err(refused(
                "spec.platform.aws.credentialsSecretRef.name is empty; name a Secret with the account's credentials",
            )),
        }
    }

    fn connect<'a>(
        &'a self,
        account: &'a Account,
        secret: Option<&'a SecretData>,
    ) -> BoxFuture<'a, Result<Arc<dyn Driver>, String>> {
        async move {
            let mut source = match secret {
                Some(secret) => Source::read(secret).map_err(|why| why.to_string())?,
                None => Source::process(),
            };
            if let Some((arn, external_id)) = &account.role {
                source = source.assume(arn, external_id.as_deref());
            }
            let driver: Arc<dyn Driver> = self.pool.connect(&account.region, source).await;
            Ok(driver)
        }
        .boxed()
    }
}

impl Aws {
    /// The Secret with the service provider's credentials, which assume the roles that clusters name: namespace and name.
    fn service_provider(&self) -> Option<(String, String)> {
        let namespace = &self.flags.aws_service_provider_secret_namespace;
        self.flags.aws_service_provider_secret.as_ref().map(|name| (namespace.clone(), name.clone()))
    }
}

fn arn_and_id(role: &AssumeRole) -> Result<(String, Option<String>), CloudError> {
    if role.role_arn.is_empty() {
        return Err(refused("spec.platform.aws.credentialsAssumeRole.roleARN is empty"));
    }
    Ok((role.role_arn.clone(), role.external_id.clone()))
}

fn refused(message: &str) -> CloudError {
    CloudError { kind: CloudErrorKind::Credentials, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use shared::hive::api::{AwsPlatform, ClusterDeploymentSpec, LocalReference, Platform as Spec};

    use super::*;

    fn platform(change: fn(&mut AwsFlags)) -> Aws {
        let mut flags = AwsFlags { aws_service_provider_secret_namespace: "hive".into(), ..AwsFlags::default() };
        change(&mut flags);
        Aws::new(&flags, &Process { identity: "test".into(), permit: Arc::new(|| true) })
    }

    fn cluster(secret: Option<&str>, role: Option<&str>) -> ClusterDeployment {
        let aws = AwsPlatform {
            region: "us-east-1".into(),
            credentials_secret_ref: secret.map(|name| LocalReference { name: name.into() }),
            credentials_assume_role: role.map(|arn| AssumeRole { role_arn: arn.into(), external_id: Some("x".into()) }),
        };
        let platform = Spec { aws: Some(aws), ..Spec::default() };
        let mut cluster = ClusterDeployment::new("demo", ClusterDeploymentSpec { platform, ..Default::default() });
        cluster.metadata.namespace = Some("ns".into());
        cluster
    }

    #[test]
    fn credentials_come_from_where_hive_takes_them() {
        let provider = |flags: &mut AwsFlags| flags.aws_service_provider_secret = Some("provider".into());
        let own = |flags: &mut AwsFlags| flags.own_aws_credentials_in = vec!["ns".into()];
        let nothing = |_: &mut AwsFlags| {};
        for (case, flags, secret, role, expected) in [
            ("its own Secret", nothing as fn(&mut AwsFlags), Some("creds"), None, Ok(Some(("ns", "creds")))),
            ("its own Secret beats a role", provider, Some("creds"), Some("arn:r"), Ok(Some(("ns", "creds")))),
            ("a role, by the service provider", provider, None, Some("arn:r"), Ok(Some(("hive", "provider")))),
            ("a role, by the process", own, Some(""), Some("arn:r"), Ok(None)),
            ("the process", own, None, None, Ok(None)),
            ("a role that nobody may assume", nothing, None, Some("arn:r"), Err("--aws-service-provider-secret")),
            ("an empty role", provider, None, Some(""), Err("roleARN is empty")),
            ("nothing", nothing, Some(""), None, Err("credentialsSecretRef.name is empty")),
        ] {
            let found = platform(flags).access(&cluster(secret, role));
            match (found, expected) {
                (Ok(access), Ok(secret)) => {
                    let found = access.secret.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
                    assert_eq!(found, secret, "{case}");
                    assert_eq!(access.account.region, "us-east-1");
                }
                (Err(error), Err(part)) => {
                    assert_eq!(error.kind, CloudErrorKind::Credentials);
                    assert!(error.message.contains(part), "{case}: {error}");
                }
                (found, _) => panic!("{case}: {found:?}"),
            }
        }
    }
}
