//! AWS as the controller registers it: its flags, its Secrets, and its part of a cluster's spec.

use std::sync::Arc;

use cloud_common::{Access, Platform, Process, SecretData, region};
use shared::cloud::{AwsRole, CloudError, CloudErrorKind, ClusterRef, Driver, PlatformSpec, Verb};

use crate::call::api_name;
use crate::client::Options;
use crate::credentials::Source;
use crate::pool::Ec2Pool;
use crate::quota::Quota;
use crate::roles::{self, AllowedRole};

/// Where a cluster names its role.
const ROLE_FIELD: &str = "spec.platform.aws.credentialsAssumeRole.roleARN";

/// The controller's flags for AWS.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AwsFlags {
    /// Namespace whose clusters without a credentials Secret may use this process's own AWS credentials; repeatable
    #[arg(long = "own-aws-credentials-in", value_name = "NAMESPACE")]
    pub own_aws_credentials_in: Vec<String>,
    /// Secret with the service provider's AWS credentials, used to assume the roles in credentialsAssumeRole: the name
    /// in HiveConfig's spec.serviceProviderCredentialsConfig.aws.credentialsSecretRef
    #[arg(long, value_name = "NAME")]
    pub aws_service_provider_secret: Option<String>,
    /// Namespace of that Secret: the one Hive runs in
    #[arg(long, value_name = "NAMESPACE", default_value = "hive")]
    pub aws_service_provider_secret_namespace: String,
    /// Roles that clusters of a namespace may have assumed.
    #[arg(
        long = "aws-role",
        value_name = "NAMESPACE=ARN-PATTERN",
        help = "Role that clusters of a namespace may have assumed; repeatable. If given, no other role is assumed, and none in other \
                namespaces. * stands for any characters but a colon. Example: \
                --aws-role team-a=arn:aws:iam::123456789012:role/hibernate-*"
    )]
    pub aws_role: Vec<AllowedRole>,
    /// EC2 and STS endpoint to use instead of the AWS endpoints
    #[arg(long, value_name = "URL")]
    pub aws_endpoint_url: Option<String>,
    /// EC2 quota that AWS has raised for the accounts; repeatable. BURST tokens at once, RATE tokens a second; NAME is
    /// one of describe-requests, start-requests, start-instances, stop-requests, stop-instances, terminate-requests,
    /// terminate-instances
    #[arg(long = "aws-quota", value_name = "NAME=BURST/RATE")]
    pub aws_quota: Vec<Quota>,
}

/// The platform `aws`.
pub struct Aws {
    pool: Ec2Pool,
    flags: AwsFlags,
}

/// What tells two drivers apart: region, role to assume, and tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    role: Option<AwsRole>,
    region: String,
    /// Namespace of the cluster, if its own Secret is used: roles that the Secret names are checked for that namespace.
    tenant: Option<String>,
}

impl Platform for Aws {
    const NAME: &'static str = "aws";
    type Flags = AwsFlags;
    type Account = Account;

    fn api_call(call: &'static str) -> Option<&'static str> {
        Some(match call {
            "list" => "DescribeInstances",
            "start" => api_name(Verb::Start),
            "stop" => api_name(Verb::Stop),
            "terminate" => api_name(Verb::Terminate),
            other => other,
        })
    }

    fn new(flags: &AwsFlags, process: &Process) -> Self {
        let options = Options {
            endpoint_url: flags.aws_endpoint_url.clone(),
            process: process.clone(),
            quotas: flags.aws_quota.clone(),
        };
        Self { pool: Ec2Pool::new(options), flags: flags.clone() }
    }

    /// As Hive chooses: the cluster's own Secret, otherwise a role, otherwise what the process has.
    fn access(&self, cluster: &ClusterRef) -> Result<Access<Account>, CloudError> {
        let namespace = cluster.namespace.clone();
        let region = region(Self::NAME, &cluster.region, "us-east-1")?;
        if !cluster.credentials.is_empty() {
            let account = Account { role: None, region, tenant: Some(namespace.clone()) };
            return Ok(Access { secrets: vec![(namespace, cluster.credentials.clone())], account });
        }
        let own = self.flags.own_aws_credentials_in.contains(&namespace);
        match &cluster.platform {
            PlatformSpec::Aws { role: Some(role) } => {
                let secret = self.service_provider();
                if secret.is_none() && !own {
                    return Err(refused(
                        "spec.platform.aws.credentialsAssumeRole needs the service provider's credentials: start the \
                         controller with --aws-service-provider-secret, as HiveConfig names it in \
                         spec.serviceProviderCredentialsConfig.aws.credentialsSecretRef",
                    ));
                }
                if role.arn.is_empty() {
                    return Err(refused(&format!("{ROLE_FIELD} is empty")));
                }
                roles::check(&self.flags.aws_role, &namespace, &role.arn)
                    .map_err(|why| refused(&format!("{ROLE_FIELD} {why}")))?;
                let secrets = secret.into_iter().collect();
                Ok(Access { secrets, account: Account { role: Some(role.clone()), region, tenant: None } })
            }
            _ if own => Ok(Access { secrets: Vec::new(), account: Account { role: None, region, tenant: None } }),
            _ => Err(refused(
                "spec.platform.aws.credentialsSecretRef.name is empty; name a Secret with the account's credentials",
            )),
        }
    }

    async fn connect(&self, account: &Account, secrets: &[SecretData]) -> Result<Arc<dyn Driver>, String> {
        let mut source = match secrets.first() {
            Some(secret) => Source::read(secret)?,
            None => Source::process(),
        };
        if let Some(tenant) = &account.tenant {
            let mut own = source.roles().map(|arn| roles::check(&self.flags.aws_role, tenant, arn));
            own.try_for_each(|role| role.map_err(|why| format!("aws_config: role_arn {why}")))?;
        }
        if let Some(role) = &account.role {
            source = source.assume(&role.arn, role.external_id.as_deref());
        }
        let driver: Arc<dyn Driver> = self.pool.connect(&account.region, source).await;
        Ok(driver)
    }
}

impl Aws {
    /// The Secret with the service provider's credentials, which assume the roles that clusters name: namespace and
    /// name.
    fn service_provider(&self) -> Option<(String, String)> {
        let namespace = &self.flags.aws_service_provider_secret_namespace;
        self.flags.aws_service_provider_secret.as_ref().map(|name| (namespace.clone(), name.clone()))
    }
}

fn refused(message: &str) -> CloudError {
    CloudError::new(CloudErrorKind::Credentials, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(change: fn(&mut AwsFlags)) -> Aws {
        let mut flags = AwsFlags { aws_service_provider_secret_namespace: "hive".into(), ..AwsFlags::default() };
        change(&mut flags);
        Aws::new(&flags, &cloud_conformance::process(Arc::new(|| true)))
    }

    fn cluster(secret: &str, role: Option<&str>) -> ClusterRef {
        let role = role.map(|arn| AwsRole { arn: arn.into(), external_id: Some("x".into()) });
        ClusterRef {
            namespace: "ns".into(),
            region: "us-east-1".into(),
            credentials: secret.into(),
            platform: PlatformSpec::Aws { role },
            ..ClusterRef::default()
        }
    }

    #[test]
    fn a_region_is_one_and_spelled_in_one_way() {
        for (region, is_one) in [
            ("us-east-1", true),
            ("us-gov-west-1", true),
            ("r", true),
            ("", false),
            ("US-EAST-1", false),
            ("us-east-1 ", false),
            ("us-east-1.amazonaws.com/?", false),
            ("evil.example.com#", false),
            ("127.0.0.1:80/", false),
            (&"r".repeat(33), false),
        ] {
            let cluster = ClusterRef { region: region.into(), ..cluster("creds", None) };
            let found = platform(|_| {}).access(&cluster).map_err(|error| (error.kind, error.message));
            match found {
                Ok(access) => assert!(is_one && access.account.region == region, "{region}"),
                Err((kind, message)) => {
                    assert!(!is_one && kind == CloudErrorKind::Invalid, "{region}");
                    assert!(message.starts_with("spec.platform.aws.region is "), "{message}");
                }
            }
        }
    }

    fn allowing(flags: &mut AwsFlags) {
        flags.aws_service_provider_secret = Some("provider".into());
        flags.own_aws_credentials_in = vec!["own".into()];
        flags.aws_role = vec!["ns=arn:aws:iam::1:role/*".parse().unwrap()];
    }

    #[test]
    fn with_a_role_flag_no_other_role_is_assumed() {
        let (allowed, other) = ("arn:aws:iam::1:role/tenant", "arn:aws:iam::2:role/tenant");
        for (namespace, role, passes) in [
            ("ns", allowed, true),
            ("ns", other, false),
            ("other", allowed, false),
            // Neither does the controller's own right to assume roles go further.
            ("own", allowed, false),
        ] {
            let cluster = ClusterRef { namespace: namespace.into(), ..cluster("", Some(role)) };
            match platform(allowing).access(&cluster) {
                Ok(_) => assert!(passes, "{namespace} {role}"),
                Err(error) => {
                    assert!(!passes && error.kind == CloudErrorKind::Credentials, "{namespace} {role}: {error}");
                    let says = format!(
                        "spec.platform.aws.credentialsAssumeRole.roleARN is {role}, which clusters in namespace {namespace} may not assume: \
                         name a role that is allowed there, or start the controller with --aws-role {namespace}={role}"
                    );
                    assert_eq!(error.message, says);
                }
            }
        }
        let without_role = cluster("creds", Some(other));
        assert!(platform(allowing).access(&without_role).is_ok(), "its own Secret beats the role");
    }

    #[tokio::test]
    async fn with_a_role_flag_neither_does_a_secret_name_another() {
        let file = |arn: &str| {
            let keys = "aws_access_key_id = AKIA\naws_secret_access_key = hush\n";
            let text = format!("[default]\nrole_arn = {arn}\nsource_profile = root\n[profile root]\n{keys}");
            SecretData::from([("aws_config".to_owned(), text.into_bytes())])
        };
        for (namespace, arn, passes) in [
            ("ns", "arn:aws:iam::1:role/x", true),
            ("ns", "arn:aws:iam::2:role/x", false),
            ("other", "arn:aws:iam::1:role/x", false),
        ] {
            let platform = platform(allowing);
            let cluster = ClusterRef { namespace: namespace.into(), ..cluster("creds", None) };
            let access = platform.access(&cluster).unwrap();
            let error = platform.connect(&access.account, &[file(arn)]).await.err();
            let says = format!("aws_config: role_arn is {arn}, which clusters in namespace {namespace} may not assume");
            assert_eq!(error.is_none(), passes, "{namespace} {arn}");
            assert!(error.is_none_or(|error| error.starts_with(&says)), "{namespace} {arn}");
        }
    }

    #[test]
    fn credentials_come_from_where_hive_takes_them() {
        let provider = |flags: &mut AwsFlags| flags.aws_service_provider_secret = Some("provider".into());
        let own = |flags: &mut AwsFlags| flags.own_aws_credentials_in = vec!["ns".into()];
        let nothing = |_: &mut AwsFlags| {};
        for (case, flags, secret, role, expected) in [
            ("its own Secret", nothing as fn(&mut AwsFlags), "creds", None, Ok(Some(("ns", "creds")))),
            ("its own Secret beats a role", provider, "creds", Some("arn:r"), Ok(Some(("ns", "creds")))),
            ("a role, by the service provider", provider, "", Some("arn:r"), Ok(Some(("hive", "provider")))),
            ("a role, by the process", own, "", Some("arn:r"), Ok(None)),
            ("the process", own, "", None, Ok(None)),
            ("a role that nobody may assume", nothing, "", Some("arn:r"), Err("--aws-service-provider-secret")),
            ("an empty role", provider, "", Some(""), Err("roleARN is empty")),
            ("nothing", nothing, "", None, Err("credentialsSecretRef.name is empty")),
        ] {
            let found = platform(flags).access(&cluster(secret, role));
            match (found, expected) {
                (Ok(access), Ok(secret)) => {
                    let found = access.secrets.first().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
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
