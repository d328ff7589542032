"""A result records the variables that concern communication, and never a secret."""

from hypothesis import given
from hypothesis import strategies as st

from busbw.core.env import ALLTOALLV, VARIABLES, carried, shown
from busbw.core.masking import MASK

PREFIXES = st.sampled_from(
    [
        "NCCL_",
        "BUSBW_",
        "OMPI_MCA_",
        "UCX_",
        "FI_",
        "GLOO_",
        "TORCH_NCCL_",
        "CUDA_",
        "PMIX_MCA_",
        "",
        "MY_",
        "AWS_",
    ]
)
MIDDLES = st.text("ABCXYZ_09", max_size=6)
SECRETS = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIALS",
    "PRIVATE",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "AUTH",
    "COOKIE",
]
SECRET_NAMES = st.tuples(
    PREFIXES,
    MIDDLES,
    st.sampled_from(SECRETS).flatmap(lambda word: st.sampled_from([word, word.lower()])),
    MIDDLES,
).map("".join)
VALUE = "s3cr3t-v4lue"


@given(SECRET_NAMES, st.booleans())
def test_a_secret_is_never_in_a_result(name: str, all_names: bool) -> None:
    shown_variables = carried({name: VALUE, "NCCL_DEBUG": "INFO"}, all_names=all_names)
    assert VALUE not in repr(shown_variables)
    assert shown_variables["NCCL_DEBUG"] == "INFO"
    assert shown_variables.get(name, MASK) == MASK
    assert shown(name, VALUE) == MASK


@given(
    st.sampled_from(["HOME", "USER", "AWS_", "GITHUB_", "MY_NCCL_", "DATABASE_", "HF_"]), MIDDLES
)
def test_unrelated_variables_are_left_out_or_masked(prefix: str, suffix: str) -> None:
    name = prefix + suffix
    assert carried({name: VALUE}) == {}
    assert carried({name: VALUE}, all_names=True) == {name: MASK}


def test_communication_variables_are_kept_unchanged_and_sorted() -> None:
    environment = {
        "UCX_TLS": "rc",
        "NCCL_ALGO": "Ring",
        "HOME": "/root",
        "SLURM_JOB_ID": "7",
        "LD_LIBRARY_PATH": "/opt",
        "OMPI_MCA_btl": "tcp",
    }
    assert list(carried(environment).items()) == [
        ("LD_LIBRARY_PATH", "/opt"),
        ("NCCL_ALGO", "Ring"),
        ("OMPI_MCA_btl", "tcp"),
        ("SLURM_JOB_ID", "7"),
        ("UCX_TLS", "rc"),
    ]


def test_internal_variables_of_launchers_are_left_out() -> None:
    names = [
        "orte_precondition_transports",
        "orte_hnp_uri",
        "orte_top_session_dir",
        "ess_base_jobid",
        "initial_wdir",
    ]
    internal = {f"OMPI_MCA_{name}": VALUE for name in names} | {
        "PMIX_SERVER_URI4": VALUE,
        "PMIX_NAMESPACE": VALUE,
    }
    assert carried(internal) == {}
    assert set(carried(internal, all_names=True).values()) == {MASK}
    carried_variables = {
        "OMPI_MCA_orte_base_help_aggregate": "0",
        "OMPI_MCA_essential": "1",
        "PMIX_MCA_gds": "hash",
    }
    assert carried(carried_variables) == dict(sorted(carried_variables.items()))


def test_all_names_keeps_every_variable() -> None:
    assert carried({"HOME": "/root", "NCCL_ALGO": "Ring"}, all_names=True) == {
        "HOME": MASK,
        "NCCL_ALGO": "Ring",
    }


def test_the_table_has_each_variable_of_nccl_tests_once() -> None:
    names = [row.name for row in VARIABLES]
    assert len(names) == len(set(names))
    assert {row.name for row in VARIABLES if row.owner == "nccl-tests"} == {
        "NCCL_TESTS_DEVICE",
        "NCCL_TESTS_MIN_BW",
        "NCCL_TESTS_SPLIT_MASK",
        "NCCL_TESTS_SPLIT",
        ALLTOALLV.matrix_file,
        ALLTOALLV.matrix_scale,
        ALLTOALLV.spread,
        ALLTOALLV.print_summary,
    }
    assert all(row.meaning for row in VARIABLES)
    assert all(row.name.startswith("BUSBW_") for row in VARIABLES if row.owner == "busbw")


def test_a_login_inside_a_url_is_masked() -> None:
    assert shown("NCCL_HTTP_PROXY", "http://me:s3cr3t@proxy:3128") == MASK
    assert shown("NCCL_CONF_FILE", "http://host:80/a@b") == "http://host:80/a@b"
