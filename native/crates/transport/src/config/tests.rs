use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Config, Error> {
    Config::read(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

#[test]
fn every_variable_of_the_table_is_read() {
    for one in VARIABLES {
        let value = if one.name == "FAMILY" { "6" } else { "4096" };
        let made = read(&[(&format!("BUSBW_NET_{}", one.name), value)]);
        let rejected = made.as_ref().is_err_and(|error| error.message.contains("no such setting"));
        assert!(!rejected, "{}", one.name);
    }
}

/// docs/reference_net.py reads the table from this file's text.
#[test]
fn the_reference_page_has_the_whole_table() {
    let page = include_str!("../../../../../docs/reference/net-plugin.md");
    let rows: Vec<_> =
        page.lines().filter(|line| line.starts_with(&format!("| `{PREFIX}"))).collect();
    let expected: Vec<_> = VARIABLES
        .iter()
        .map(|one| format!("| `{PREFIX}{}` | {} | {} |", one.name, one.default, one.help))
        .collect();
    assert_eq!(rows, expected, "run python docs/generate.py");
}

#[test]
fn invalid_values_are_named() {
    for (name, value) in [
        ("STREAMS", "0"),
        ("STREAMS", "many"),
        ("FAMILY", "5"),
        ("INLINE", "32769"),
        ("INLINE_IDLE", "131073"),
        ("TIMEOUT", "-1"),
    ] {
        let error = read(&[(&format!("BUSBW_NET_{name}"), value)]).unwrap_err();
        assert!(
            error.message.starts_with(&format!("BUSBW_NET_{name}={value}: invalid value")),
            "{error}"
        );
    }
    assert!(read(&[("BUSBW_NET_STREAM", "4")]).unwrap_err().message.contains("no such setting"));
}

#[test]
fn interfaces_are_those_of_nccl_by_default() {
    assert_eq!(read(&[("NCCL_SOCKET_IFNAME", "eth")]).unwrap().ifname, "eth");
    assert_eq!(
        read(&[("NCCL_SOCKET_IFNAME", "eth"), ("BUSBW_NET_IFNAME", "^lo")]).unwrap().ifname,
        "^lo"
    );
    assert_eq!(read(&[("BUSBW_NET_STREAMS", " ")]).unwrap().streams, 4);
}

#[test]
fn the_local_rank_comes_from_the_launcher() {
    assert_eq!(read(&[]).unwrap().local_rank, None);
    assert_eq!(read(&[("OMPI_COMM_WORLD_LOCAL_RANK", "3")]).unwrap().local_rank, Some(3));
    assert_eq!(read(&[("LOCAL_RANK", "?"), ("SLURM_LOCALID", "1")]).unwrap().local_rank, Some(1));
}

#[test]
fn a_slow_link_gets_fewer_threads_by_default() {
    let mut config = Config { threads: 12, ..Config::default() };
    let of =
        |config: &Config, speeds: &[Option<u32>]| config.threads_for_speeds(speeds.iter().copied());
    assert_eq!(
        [
            of(&config, &[Some(1_000)]),
            of(&config, &[Some(25_000)]),
            of(&config, &[Some(25_000); 2])
        ],
        [2, 6, 11]
    );
    assert_eq!([of(&config, &[Some(400_000)]), of(&config, &[Some(1_000), None])], [12, 12]);
    config.threads_asked = true;
    assert_eq!(of(&config, &[Some(1_000)]), 12);
}

#[test]
fn threads_follow_the_cores_of_a_rank() {
    assert_eq!([threads_for(1), threads_for(2), threads_for(16), threads_for(128)], [2, 2, 12, 16]);
}
