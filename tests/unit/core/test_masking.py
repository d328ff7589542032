"""No secret stays in what is kept, whatever place it has, and what is harmless stays as it was."""

import base64
import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.env import carried
from busbw.core.masking import MASK, masked, masked_data, masked_value, masked_words
from busbw.host.snapshot import Recording, parse_archive
from busbw.host.source import Reading

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
EDGE = st.sampled_from(LETTERS)


def _text(extra: str = "", least: int = 8) -> st.SearchStrategy[str]:
    return st.tuples(
        EDGE, EDGE, st.text(LETTERS + extra, min_size=least, max_size=least + 20), EDGE
    ).map("".join)


# what a password may have, outside of quotes
ANY = _text("!#%^*_+-./~:,;|@$={}[]()<>?&").filter(lambda text: not text.isdecimal())
BASIC = st.tuples(_text(), _text("!#/")).map(
    lambda login: base64.b64encode(":".join(login).encode()).decode()
)
FORMS = st.one_of(
    st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", min_size=16, max_size=16).map("AKIA{}".format),
    _text(least=30).map("hf_{}".format),
    _text(least=30).map("ghp_{}".format),
    _text(least=30).map("gho_{}".format),
    _text("_", least=40).map("github_pat_{}".format),
    _text("-_", least=20).map("glpat-{}".format),
    _text("-_", least=40).map("sk-{}9".format),
    _text("-", least=20).map("xoxb-{}".format),
    _text("-_", least=40).map("nvapi-{}".format),
    st.tuples(_text("-_"), _text("-_"), _text("-_")).map(lambda parts: "eyJ" + ".".join(parts)),
    _text("+/", least=60).map(
        lambda key: f"-----BEGIN RSA PRIVATE KEY-----\n{key}\n-----END RSA PRIVATE KEY-----"
    ),
    _text("./", least=40).map("$6$salt${}".format),
    _text("./", least=22).map("$apr1$salt${}".format),
    st.tuples(st.sampled_from(("sk_live_", "rk_test_")), _text(least=24)).map("".join),
    st.tuples(_text("-_", least=16), _text("-_", least=30)).map(
        lambda parts: f"SG.{parts[0]}.{parts[1]}"
    ),
    st.text("0123456789abcdef", min_size=64, max_size=64).map("dop_v1_{}".format),
    st.text("0123456789abcdef", min_size=32, max_size=32).map("key-{}".format),
    st.text("0123456789abcdef", min_size=32, max_size=32).map("SK{}".format),
    _text("-_", least=30).map("1234567890:AA{}".format),
    _text("-_", least=30).map("ya29.{}".format),
)
NAMES = st.sampled_from(
    (
        "SLURM_JWT",
        "HF_TOKEN",
        "API_KEY",
        "WANDB_API_KEY",
        "DB_PASSWORD",
        "MYSQL_PWD",
        "PGPASSWORD",
        "client_secret",
        "AWS_SECRET_ACCESS_KEY",
        "NCCL_AUTH_TOKEN",
        "SESSION_COOKIE",
        "GOOGLE_CREDENTIALS",
        "wpa_psk",
        "private_key",
        "accessToken",
        "AccountKey",
        "X-Api-Key",
        "DB_PASS",
        "BMC_PW",
        "passphrase",
    )
)
OPTIONS = st.sampled_from(
    (
        "--password",
        "--token",
        "--api-key",
        "--key",
        "--secret",
        "-password",
        "--client-secret",
        "--pass",
        "--auth",
        "--jwt",
    )
)
SHELL = st.sampled_from(
    (
        "sshpass -p {} ssh -p 2222 host",
        "sshpass -p{} ssh host",
        "mysql -u root -p{}",
        "curl -u me:{} http://host/",
        "docker login -u me -p {}",
        "redis-cli -a {}",
        "ipmitool -U admin -P {} power",
        "ldapsearch -w {}",
        "setenv HF_TOKEN {}",
        "openssl rsa -passin {}",
        "mpirun -x SLURM_JWT={} -n 2 ./a",
        "mpirun --mca sec_auth {} ./a",
        "mpiexec -genv API_TOKEN {} ./a",
        "env --x=DB_PASSWORD={} ./a",
        "login me password {}",
        "kubectl create secret generic a --from-literal=password={}",
        "wandb login {}",
        "wandb login --relogin --host https://wandb.corp {}",
        "aws configure set aws_secret_access_key {}",
        "sudo htpasswd -b /etc/nginx/users admin {}",
        "htpasswd -nbB admin {}",
        "openssl passwd -6 -salt ab {}",
        "ipmitool -H bmc -U root user set password 2 {}",
        "mosquitto_passwd -b /etc/mosquitto/passwd me {}",
        "rabbitmqctl change_password me {}",
        "redis-cli -h host AUTH {}",
        "smbclient //host/share {} -U me",
        "racadm set iDRAC.Users.2.Password {}",
        "npm config set //registry/:_authToken {}",
        "echo {} | sudo -S ls",
        "chpasswd <<< root:{}",
        "mount -t cifs //host/share /mnt -o user=me,pass={}",
        "mount -t cifs -o rw,password={} //host/share /mnt",
        "mount.cifs //host/share /mnt -o user=me%{}",
        "mount -t ceph host:/ /mnt -o name=admin,secret={}",
        "iscsiadm -m node -o update -n node.session.auth.password -v {}",
        "7z a -p{} a.7z b",
        "rar a -hp{} a.rar b",
    )
)
LINES = st.sampled_from(
    (
        "Authorization: Bearer {}",
        'curl -H "Authorization: Bearer {}" http://host',
        "Authorization: Token {}",
        "X-Auth-Token: {}",
        "Cookie: a={}",
        "BOOT_IMAGE=/vmlinuz ro ksdevice=eth0 ks.password={} quiet",
        "kernel: init: secret={}",
        "export HF_TOKEN={}",
        "password: {}",
        "token = '{}'",
        'a "token": "{}", b',
        "proxy http://me:{}@proxy:3128/a",
        'got {{\\"password\\": \\"{}\\"}} there',
        "bearer {}",
        "GET /a?token={}&b=1",
        "https://store/x?sv=1&sig={}",
        "Proxy-Authorization: Digest user=a, response={}",
        'ssh -o ProxyCommand="sshpass -p {} ssh -W %h:%p jump" host',
        "ssh -o 'ProxyCommand=sshpass -p {} ssh jump' host",
        "bash -c 'curl -u u:{} http://host/'",
        "bash -c 'htpasswd -b users me {}'",
        "CREATE USER me IDENTIFIED BY '{}'",
        'sudo sh -c "cd /tmp && mysql -u root -p{} db"',
        """bash -c "bash -c 'sshpass -p {} ssh host'" """,
        "root=iscsi: netroot=iscsi:u:{}@10.0.0.1::3260::iqn.2009-06.a quiet",
        "https://hooks.slack.com/services/T0AB/B0AB/{}",
        "https://discord.com/api/webhooks/1234/{}",
        "https://corp.webhook.office.com/webhookb2/a@b/IncomingWebhook/{}/c",
    )
)
URL_SAFE = _text("-_.~+%")


def strings_of(text: str) -> list[str]:
    """The same text in each place of a snapshot: a file, a file of words that end with NUL, and
    the JSON of a call, as line and words.
    """

    class Machine:
        def read(self, path: str) -> Reading:
            return Reading(text.encode() if path == "/text" else text.replace(" ", "\0").encode())

        def call(self, name: str, live):
            return Reading(
                json.dumps(
                    {"line": text, "words": shlex.split(text), "n": [1, None, {"last": "x"}]}
                ).encode()
            )

    recording = Recording(Machine())
    for path in ("/text", "/words"):
        recording.read(path)
    recording.call("call", str)
    archive = recording.archive()
    source = parse_archive(archive)
    document = json.loads(source.call("call", str).text)
    assert document.keys() == {"line", "words", "n"}
    assert document["n"] == [1, None, {"last": "x"}]
    assert len(document["words"]) == len(shlex.split(text))
    assert source.read("/words").data.count(b"\0") == text.count(" ")
    return archive


@given(SHELL, ANY.filter(lambda text: "'" not in text))
def test_a_secret_of_a_command_line(line, secret):
    words = [word.replace("SECRET", secret) for word in shlex.split(line.format("SECRET"))]
    for text in (
        " ".join(masked_words(words)),
        json.dumps(masked_data({"argv": words})),
        masked("\0".join(words)),
    ):
        assert secret not in text
    assert len(masked_words(words)) == len(words)
    masked_line = masked(line.format(secret))
    assert secret not in masked_line
    assert masked_line.split()[0] == line.split()[0]


@given(
    st.one_of(SHELL.filter(lambda line: "{}@" not in line), LINES),
    st.text(LETTERS, min_size=3, max_size=40).map("Q7x{}".format),
)
def test_a_secret_in_each_place_of_a_snapshot(line, secret):
    if "\\" in line or "'" in line:
        assert secret not in masked(line.format(secret))
    else:
        assert secret not in strings_of(line.format(secret))


@given(LINES, URL_SAFE)
def test_a_secret_in_a_line(line, secret):
    assert secret not in masked(line.format(secret))


@given(OPTIONS, ANY, st.booleans())
def test_a_secret_of_an_option(option, secret, with_equals):
    words = (
        ["prog", f"{option}={secret}", "--next"]
        if with_equals
        else ["prog", option, secret, "--next"]
    )
    assert secret not in "".join(masked_words(words))
    assert [words[0], words[-1]] == [(hidden := masked_words(words))[0], hidden[-1]]
    assert secret not in masked(" ".join(words))


@given(NAMES, ANY)
def test_a_secret_of_a_name(name, secret):
    environment = {"NCCL_DEBUG": "INFO", name: secret, f"NCCL_{name}": secret}
    for all_names in (False, True):
        assert secret not in repr(carried(environment, all_names=all_names))
    assert masked_value(name, secret) == MASK
    for document in (
        environment,
        [{"name": name, "value": secret}],
        [[name, secret]],
        {name: {"data": [secret]}},
        {"a": [f"{name}={secret}"]},
    ):
        assert secret not in json.dumps(masked_data(document))
        assert secret not in masked(json.dumps(document))
    assert secret not in masked(f"12:00 x {name}={secret} y") + masked(
        f"{name}: {secret}\n"
    ) + masked(f"-e {name}={secret}\n")


@given(st.one_of(FORMS, BASIC.map("Basic {}".format)))
def test_a_secret_that_shows_its_form(secret):
    value = secret.removeprefix("Basic ")
    for document in ({"a": [secret]}, {"b": {"c": f"x {secret} y"}}, [f"--x={secret}", secret]):
        hidden = masked_data(document)
        assert value not in repr(hidden)
        assert type(hidden) is type(document)
    assert value not in repr(carried({"NCCL_X": secret}))
    assert value not in masked(f"a line {secret} and more")


HARMLESS = (
    "ssh -o PasswordAuthentication=no -o BatchMode=yes -o NumberOfPasswordPrompts=0 host",
    "ssh -i /root/.ssh/id_rsa -p 2222 -o PreferredAuthentications=publickey host",
    "docker run -p 8080:80 image",
    "mpirun -x NCCL_DEBUG=INFO -x PATH --mca btl tcp,self -np 8 ./all_reduce_perf -b 8 -e 1G",
    "TOKENIZERS_PARALLELISM=false python train.py --max-tokens 4096 --tokenizer-model gpt2",
    "busbw moe --tokens 128:4K --experts 64",
    "NCCL_IB_PKEY=0x7fff UCX_IB_PKEY=0x8001 NCCL_CONF_KEY=ring",
    "--token-file /etc/busbw/token --private-key ~/.ssh/id_ed25519 --ssl-key ./server.key",
    "PWD=/root OLDPWD=/tmp SSH_AUTH_SOCK=/tmp/ssh-1/agent.2",
    "BOOT_IMAGE=/boot/vmlinuz-6.8.0 root=UUID=d3b0-44 ro quiet iommu=pt hugepages=1024",
    "[    3.1] Key type .dns_resolver registered",
    "[    2.5] Loaded X.509 cert 'Build time autogenerated kernel key: 9af03a6d94'",
    "[   11.0] mlx5_core 0000:3b:00.0: mkey 0x1f2a: bad rkey 0x7",
    "tcp_syncookies = 1",
    "rx_auth_fail: 12",
    "AuthType=auth/munge",
    "tipc: Enabled bearer <eth:eth0>, priority 10",
    "Permission denied (publickey,password).",
    "http://host:80/a@b",
    "Basic research by the authors: none",
    "audit: type=1400 apparmor=DENIED key=(null)",
    '{"pass": 17, "key": "nvidia.com/gpu", "tokens": 4096, "author": "x"}',
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus.",
    "sysctl net.ipv4.tcp_fastopen_key_size=16",
    "Server returned 401: basic authentication, bearer token needed",
    "wandb: run wandb login to go on",
    "BUSBW OK | fail=0 warn=0 pass=518 skip=14",
    "docker run --user=1000:1000 image",
    "glibc-headers-2.28-251.el8_10.2.x86_64 sk-learn-1.5.2 monkey-2026-with-a-long-name-of-a-host-1",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "netroot=iscsi:10.0.0.1::3260::iqn.2009-06.dracut:target0 SKU 699-2G520-0205-510",
    "https://discord.com/developers/docs/resources/webhook GET /hooks/status",
    "iscsi: registered transport (tcp) at 1234567890:AAB disk_live_migration",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_unchanged(text):
    assert masked(text) == text
    words = text.split(" ")
    assert masked_words(words) == words


def test_the_scheme_and_token_of_a_header_are_masked():
    assert masked("Authorization: Bearer abc123, next") == "Authorization: Bearer ***, next"


@pytest.mark.parametrize(
    ("line", "masked_line"),
    [
        ("mysql -phunter2 mydb", "mysql -p*** mydb"),
        ("mysql -pMyToken mydb", "mysql -p*** ***"),  # the value looks like an option of its own
        ('mysql "-phunter2" -h db', 'mysql "-p***" -h db'),
        ("(mysql -phunter2)", "(mysql -p***)"),
        ("sh -c `mysql -phunter2 mydb`", "sh -c `mysql -p*** mydb`"),
        ("$(/usr/bin/mysql -p hunter2)", "$(/usr/bin/mysql -p ***)"),
        ("mysql -p mydb", "mysql -p ***"),
    ],
)
def test_a_value_in_the_word_of_its_option_is_masked(line, masked_line):
    assert masked(line) == masked_line
    assert (
        masked_words(line.rstrip(")").replace('"', "").split())
        == masked_line.rstrip(")").replace('"', "").split()
    )


def test_numbers_are_masked_and_switches_are_not():
    assert masked_data({"password": 4711, "passwords": [0.5], "on": {"password": True}}) == {
        "password": "***",
        "passwords": ["***"],
        "on": {"password": True},
    }


def test_the_value_of_a_secret_parameter_of_mpirun_is_masked():
    words = shlex.split("mpirun --mca sec_auth hunter2 --mca btl tcp --token zzz -x A")
    assert masked_words(words) == shlex.split(
        "mpirun --mca sec_auth *** --mca btl tcp --token *** -x A"
    )


def test_a_document_without_secrets_is_unchanged_and_long_lines_take_no_long():
    text = '{"a" :  ["PasswordAuthentication=no", 1.50]}\n'
    assert masked(text) == text
    for long in (
        "a-" * 50_000 + "token",
        "://a:b" * 20_000,
        "sk-a-" * 20_000,
        "token=" * 20_000,
        '"token":' * 10_000,
        "[" * 50_000 + "token",
    ):
        assert isinstance(masked(long), str)
