"""Which words of a command line are secrets, by program."""

# Options whose next word is a secret. They apply up to the next program of this table, which may
# have none.
_OPTIONS = """
ssh scp sftp rsync mpirun mpiexec prterun srun sudo env:
sshpass login mongo mongosh mongodump useradd usermod rabbitmqadmin twine cqlsh snowsql: -p
7z 7za rdesktop ncftpput ncftpget racadm hponcfg redfishtool: -p
rar unrar: -p -hp
mysql mysqldump mysqladmin mariadb mariadb-dump: -p --password
snmpget snmpset snmpwalk snmpbulkwalk snmptrap: -c -A -X
ldapsearch ldapadd ldapmodify ldapwhoami ldapdelete ipa-client-install: -w -y
ldappasswd: -w -y -s -a
zip unzip mosquitto_pub mosquitto_sub sqlcmd bcp: -P
curl: -u --user -U --proxy-user
skopeo: --creds --src-creds --dest-creds
ipmitool: -P -k -Y
lftp: -u
nmcli: password wifi-sec.psk 802-11-wireless-security.psk
redis-cli: -a
smbclient smbget rpcclient winexe: -U
curlftpfs: -o
openssl: -k -K
ssh-keygen: -N -P
keytool jarsigner: -storepass -keypass -srcstorepass -deststorepass -new
xfreerdp: /p:
iscsiadm: -v
dotnet nuget gem: -k
"""
# Commands that take a secret as a word of its own, and how many words before it are none. All words
# after these are masked, but for options: an option's value may stand among them.
_ARGUMENTS = """
wandb login: 0
vault login: 0
vault kv put: 1
htpasswd: 1
openssl passwd: 0
mosquitto_passwd: 1
rabbitmqctl add_user: 1
rabbitmqctl change_password: 1
rabbitmqctl authenticate_user: 1
ipmitool user set password: 1
racadm config: 3
mysqladmin password: 0
redis-cli auth: 0
redis-cli config set requirepass: 0
smbclient: 1
net use: 1
net user: 1
samba-tool user create: 1
samba-tool user setpassword: 1
virsh secret-set-value: 1
wpa_passphrase: 1
iwconfig key: 0
iw dev connect key: 0
sedutil-cli: 0
sqlplus: 0
isql: 1
mc alias set: 2
mc config host add: 2
rclone obscure: 0
rclone config create: 2
gcloud auth activate-refresh-token: 1
ngrok authtoken: 0
ngrok config add-authtoken: 0
cloudflared service install: 0
cargo login: 0
nuget push: 1
poetry config: 1
"""
# Words of commands that read a secret from the pipe or here-string before them.
STDIN_READERS = frozenset(
    ("chpasswd", "kinit", "-S", "--stdin", "--password-stdin", "--with-token", "smbpasswd")
)
PRINTING = ("echo", "printf")


def _rows(table: str) -> list[tuple[list[str], list[str]]]:
    """The words before and after the colon of each line."""
    sides = (line.partition(":") for line in table.strip().splitlines())
    return [(left.split(), right.split()) for left, _, right in sides]


OPTIONS = {name: tuple(options) for names, options in _rows(_OPTIONS) for name in names}
# By program: the words that follow it, and the number of words that are no secret.
ARGUMENTS: dict[str, list[tuple[list[str], int]]] = {}
for command, (kept,) in _rows(_ARGUMENTS):
    ARGUMENTS.setdefault(command[0], []).append((command[1:], int(kept)))
