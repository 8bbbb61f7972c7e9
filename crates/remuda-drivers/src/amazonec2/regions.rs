//! Regions and the images machines get there when none is chosen: Ubuntu, as rancher-machine picks them.

/// The default image of a region; `None` if there is no such region.
pub(super) fn image(region: &str) -> Option<&'static str> {
    let at = REGIONS.binary_search_by_key(&region, |(name, _)| name).ok()?;
    Some(REGIONS[at].1)
}

const REGIONS: &[(&str, &str)] = &[
    ("af-south-1", "ami-041bbaef049568980"),
    ("ap-east-1", "ami-0da677a59bd878935"),
    ("ap-northeast-1", "ami-08cc96be4321e5b1f"),
    ("ap-northeast-2", "ami-01e69ea1a3e0010f9"),
    ("ap-northeast-3", "ami-0f14d4518c5e11193"),
    ("ap-south-1", "ami-0114b36a18ddfaa28"),
    ("ap-south-2", "ami-066d98478cd8e4c77"),
    ("ap-southeast-1", "ami-0ee022cdf4828fb72"),
    ("ap-southeast-2", "ami-0df7505ae337f9e56"),
    ("ap-southeast-4", "ami-0961cde071a13cfcf"),
    ("ca-central-1", "ami-0c28f754c18c566ea"),
    ("ca-west-1", "ami-050e498a568657807"),
    ("cn-north-1", "ami-0cee61fcc2abc6536"),
    ("cn-northwest-1", "ami-063dbdfa885edce48"),
    ("eu-central-1", "ami-0a43b9fc420cabb27"),
    ("eu-central-2", "ami-0ba82ef40306fcb2f"),
    ("eu-north-1", "ami-0d4a39b59c9b7a755"),
    ("eu-south-1", "ami-0470471c569217367"),
    ("eu-south-2", "ami-00ccf59845b355398"),
    ("eu-west-1", "ami-0c6d91e4a58c413a9"),
    ("eu-west-2", "ami-065908f87471c0a91"),
    ("eu-west-3", "ami-03339502479ac056b"),
    ("me-central-1", "ami-05ab10873f5acc36e"),
    ("me-south-1", "ami-0d637f6739f30a48c"),
    ("sa-east-1", "ami-050efed1b88ba70b4"),
    ("us-east-1", "ami-013b3de8a8fa9b39f"),
    ("us-east-2", "ami-024adb4f8af4c9df2"),
    ("us-gov-east-1", "ami-093d375659859241e"),
    ("us-gov-west-1", "ami-040a15d01bb152ac0"),
    ("us-west-1", "ami-0b03b9afed756bb4b"),
    ("us-west-2", "ami-09a13b25443518b29"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_found() {
        assert!(REGIONS.is_sorted());
        assert_eq!(image("us-east-1"), Some("ami-013b3de8a8fa9b39f"));
        assert_eq!(image("moon-1"), None);
    }
}
