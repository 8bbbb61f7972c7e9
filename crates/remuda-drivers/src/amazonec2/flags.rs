//! The flags of rancher-machine's driver: names, variables and defaults.

use crate::flags::Flag;

pub(super) fn flags() -> Vec<Flag> {
    let text = |name: &str, env: &str, default: &str, usage: &str| {
        Flag::string(&format!("amazonec2-{name}"), env, default, usage)
    };
    let yes = |name: &str, env: &str, usage: &str| Flag::bool(&format!("amazonec2-{name}"), env, usage);
    let number = |name: &str, env: &str, default: i64, usage: &str| {
        Flag::int(&format!("amazonec2-{name}"), env, default, usage)
    };
    let list = |name: &str, env: &str, default: &[&str], usage: &str| {
        Flag::list(&format!("amazonec2-{name}"), env, default, usage)
    };
    vec![
        text("access-key", "AWS_ACCESS_KEY_ID", "", "Access key of the account"),
        text("secret-key", "AWS_SECRET_ACCESS_KEY", "", "Secret that belongs to the access key"),
        text("session-token", "AWS_SESSION_TOKEN", "", "Token of a temporary session"),
        text("ami", "AWS_AMI", "", "Image to start; each region has a default"),
        text("region", "AWS_DEFAULT_REGION", "us-east-1", "Region of the instance"),
        text("vpc-id", "AWS_VPC_ID", "", "VPC of the instance; the account's default if empty"),
        text("zone", "AWS_ZONE", "a", "Availability zone, as the letter after the region"),
        text("subnet-id", "AWS_SUBNET_ID", "", "Subnet of the instance; one of the zone if empty"),
        yes(
            "security-group-readonly",
            "AWS_SECURITY_GROUP_READONLY",
            "Leave the security groups as they are",
        ),
        list("security-group", "AWS_SECURITY_GROUP", &["rancher-nodes"], "Security groups, made if missing"),
        list("open-port", "", &[], "Further ports to open, as number or number/protocol"),
        text("tags", "AWS_TAGS", "", "Tags as key1,value1,key2,value2"),
        text("instance-type", "AWS_INSTANCE_TYPE", "t2.micro", "Type of the instance"),
        text("device-name", "AWS_DEVICE_NAME", "", "Name of the root device; the image's own if empty"),
        number("root-size", "AWS_ROOT_SIZE", 16, "Size of the root volume in GB"),
        text("volume-type", "AWS_VOLUME_TYPE", "gp2", "Type of the root volume"),
        text("iam-instance-profile", "AWS_INSTANCE_PROFILE", "", "IAM instance profile"),
        text("ssh-user", "AWS_SSH_USER", "ubuntu", "User to log in as"),
        yes("request-spot-instance", "", "Ask for a spot instance"),
        text("spot-price", "", "0.50", "Highest price of a spot instance per hour"),
        number("block-duration-minutes", "", 0, "Minutes a spot instance is kept"),
        yes("private-address-only", "", "Give no public address"),
        yes("use-private-address", "", "Reach the instance by its private address"),
        yes("monitoring", "", "Turn detailed monitoring on"),
        yes("use-ebs-optimized-instance", "", "Make the instance EBS optimised"),
        text("ssh-keypath", "AWS_SSH_KEYPATH", "", "Private key file to log in with"),
        text("keypair-name", "AWS_KEYPAIR_NAME", "", "Existing key pair; needs its private key file"),
        number("retries", "", 5, "How often a failed call is repeated"),
        text("endpoint", "AWS_ENDPOINT", "", "Another address of the EC2 API"),
        yes("insecure-transport", "AWS_INSECURE_TRANSPORT", "Use plain HTTP; only with another address"),
        text("userdata", "AWS_USERDATA", "", "File with cloud-init user data"),
        yes("encrypt-ebs-volume", "AWS_ENCRYPT_EBS_VOLUME", "Encrypt the volumes"),
        text("kms-key", "AWS_KMS_KEY", "", "Key to encrypt the volumes with"),
        text("http-endpoint", "AWS_HTTP_ENDPOINT", "", "Instance metadata: enabled or disabled"),
        text("http-tokens", "AWS_HTTP_TOKENS", "", "Metadata session tokens: optional or required"),
        text(
            "http-protocol-ipv6",
            "AWS_HTTP_PROTOCOL_IPV6",
            "disabled",
            "Metadata over IPv6: enabled or disabled",
        ),
        number("ipv6-address-count", "AWS_IPV6_ADDRESS_COUNT", 0, "Number of IPv6 addresses"),
        yes("enable-primary-ipv6", "AWS_ENABLE_PRIMARY_IPV6", "Keep the first IPv6 address for good"),
        yes(
            "ipv6-address-only",
            "AWS_IPV6_ADDRESS_ONLY",
            "Give no IPv4 address; needs an IPv6 address count",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_flags_as_the_original_has() {
        let all = flags();
        assert_eq!(all.len(), 39);
        let mut names: Vec<_> = all.iter().map(|flag| &flag.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 39);
        let secret: Vec<_> =
            all.iter().filter(|flag| flag.is_secret()).map(|flag| flag.name.as_str()).collect();
        assert_eq!(secret, ["amazonec2-access-key", "amazonec2-secret-key", "amazonec2-session-token"]);
    }
}
