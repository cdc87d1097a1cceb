//! Names of the principals of clients that are identified by their network addresses, because their protocol has no
//! credentials (NFS).

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

/// The table `[addresses]` of a policy: the name of the principal for each network or address.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub(crate) struct ClientAddresses {
    /// Networks with the names of their principals; the smallest networks are first.
    networks: Vec<(IpNet, String)>,
}

impl TryFrom<BTreeMap<String, String>> for ClientAddresses {
    type Error = String;

    fn try_from(written: BTreeMap<String, String>) -> Result<Self, String> {
        let parse = |(network, name): (String, String)| match parse_network(&network) {
            Ok(_) if name.is_empty() => Err(format!("{network} in [addresses] needs the name of a principal")),
            Ok(parsed) => Ok((parsed, name)),
            Err(problem) => Err(problem),
        };
        let mut networks: Vec<_> = written.into_iter().map(parse).collect::<Result<_, _>>()?;
        networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix_len()));
        Ok(Self { networks })
    }
}

impl ClientAddresses {
    /// Returns the name of the principal of the smallest network that contains the address.
    pub(crate) fn principal_name(&self, address: IpAddr) -> Option<&str> {
        let found = self.networks.iter().find(|(network, _)| network.contains(&address));
        found.map(|(_, name)| name.as_str())
    }
}

fn parse_network(text: &str) -> Result<IpNet, String> {
    let parsed = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    match parsed {
        Some(network) if network.trunc() == network => Ok(network),
        Some(network) => {
            Err(format!("{text} in [addresses] is an address within a network; write {}", network.trunc()))
        }
        None => Err(format!("{text} in [addresses] is not a network such as 10.1.0.0/16, and not an address")),
    }
}
