package cli

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// `config check` prints all problems with their places, or the features that are off. It creates nothing.
func TestConfigCheck(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	file := filepath.Join(t.TempDir(), "postrider.toml")
	if err := os.WriteFile(file, []byte("hostname = \"mail.example.com\"\nblob_url = \"s3:/x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &installation{t: t, vars: map[string]string{"POSTRIDER_DATA_DIR": dir, "POSTRIDER_CONFIG": file,
		"POSTRIDER_SMTP_PROT": "25", "POSTRIDER_ROLES": "cook"}}
	out, errOut, code := p.command("config", "check", "--notice-from", "notices")
	for _, want := range []string{"blob_url (" + file + `:2): "s3:/x" is neither a folder nor a URL`,
		"POSTRIDER_SMTP_PROT: there is no such setting; did you mean POSTRIDER_SMTP_PORT?",
		`roles (POSTRIDER_ROLES): "cook" is not known`, `notice_from (--notice-from): "notices" is no sender`} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not print %q:\n%s", want, out)
		}
	}
	if code != 1 || errOut != "" || strings.Count(out, "\n") != 4 {
		t.Errorf("exit code %d, said %q, printed\n%s", code, errOut, out)
	}
	p.vars = map[string]string{"POSTRIDER_DATA_DIR": dir, "POSTRIDER_DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"}
	out = p.must("config", "check")
	if !strings.HasPrefix(out, "the settings are valid\n") || !strings.Contains(out, "off: receiving: This node receives") {
		t.Errorf("of valid settings it prints\n%s", out)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the command creates the data folder")
	}
}

// `config check` finds the mistakes with which a node would not start in the file of DNS providers.
func TestConfigCheckReadsDNSProviders(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "providers.toml")
	p := &installation{t: t, vars: map[string]string{"POSTRIDER_DATA_DIR": t.TempDir(),
		"POSTRIDER_DNS_PROVIDERS_FILE": file}}
	for text, want := range map[string]string{
		"": "has 0 tables",
		"[[providers]]\nname = \"Own\"\nservers = [\"*.ns.example.com\"]\nzone = \"no\"": "provider 1 (Own): zone must be",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errOut, code := p.command("config", "check")
		if code != 1 || errOut != "" || !strings.Contains(out, want) ||
			!strings.Contains(out, "dns_providers_file (POSTRIDER_DNS_PROVIDERS_FILE): ") {
			t.Errorf("%q: exit code %d, said %q, printed\n%s", text, code, errOut, out)
		}
	}
}

// `config check` finds the mistakes with which a node would not start in the file of destinations.
func TestConfigCheckReadsDestinations(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "destinations.toml")
	p := &installation{t: t, vars: map[string]string{"POSTRIDER_DATA_DIR": t.TempDir(),
		"POSTRIDER_DESTINATIONS_FILE": file}}
	for _, c := range []struct {
		text  string
		wants []string
	}{
		{"", []string{"destinations_file (POSTRIDER_DESTINATIONS_FILE): ", "no such file"}},
		{"[a", []string{"destinations_file (POSTRIDER_DESTINATIONS_FILE): ", file}},
		{"[a]\ndomains = [\"a.example\"]\nrelay = \"corp\"\nrate = 1\n[b]\nrealy = \"corp\"", []string{"[a].rate",
			"[b].realy", "did you mean relay?"}},
	} {
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, errOut, code := p.command("config", "check")
		for _, want := range c.wants {
			if !strings.Contains(out, want) {
				t.Errorf("%q: it does not print %q:\n%s", c.text, want, out)
			}
		}
		if code != 1 || errOut != "" || strings.Contains(out, "are valid") {
			t.Errorf("%q: exit code %d, said %q, printed\n%s", c.text, code, errOut, out)
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{pipe, t.TempDir()} {
		out, _, code := p.command("config", "check", "--destinations-file", other)
		if code != 1 || !strings.Contains(out, other+": it is not a file") {
			t.Errorf("exit code %d, printed\n%s", code, out)
		}
	}
	if err := os.WriteFile(file, []byte("[a]\ndomains = [\"a.example\"]\nrate = \"1/s\""), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := p.must("config", "check"); !strings.HasPrefix(out, "the settings are valid\n") {
		t.Errorf("of a valid file it prints\n%s", out)
	}
}

// `config check` finds the mistakes with which a node would not start in the files of certificates, all at once.
func TestConfigCheckReadsCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &installation{t: t, vars: map[string]string{"POSTRIDER_DATA_DIR": dir, "POSTRIDER_TLS_CERT_FILE": text,
		"POSTRIDER_TLS_KEY_FILE": dir + "/none", "POSTRIDER_ACME": "true", "POSTRIDER_ACME_CA_FILE": dir + "/none",
		"POSTRIDER_ACME_DNS_HOOK": text, "POSTRIDER_DESTINATIONS_FILE": dir + "/none"}}
	out, errOut, code := p.command("config", "check")
	for _, want := range []string{"destinations_file (POSTRIDER_DESTINATIONS_FILE): ", "acme_ca_file (POSTRIDER_ACME_CA_FILE): open " + dir + "/none: no such file",
		"acme_dns_hook (POSTRIDER_ACME_DNS_HOOK): " + text, "tls_cert_file (POSTRIDER_TLS_CERT_FILE): " + text + ": the file contains no certificate in PEM"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not print %q:\n%s", want, out)
		}
	}
	if code != 1 || errOut != "" || strings.Contains(out, "are valid") {
		t.Errorf("exit code %d, said %q, printed\n%s", code, errOut, out)
	}
}

// `config check` also reads the files that valid settings name, and the parameters of blob_url. A certificate that
// clients refuse is a warning, because a node starts with it.
func TestConfigCheckReadsFiles(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, vars: map[string]string{"POSTRIDER_DATA_DIR": filepath.Join(t.TempDir(), "none"),
		"POSTRIDER_HOSTNAME": "mail.example.com", "POSTRIDER_ROLES": "api,receiving"}}
	p.certificate(30)
	key := p.vars["POSTRIDER_TLS_KEY_FILE"]
	p.certificate(30)
	for _, c := range []struct {
		name string
		vars map[string]string
		want []string
	}{
		{"another key", map[string]string{"TLS_KEY_FILE": key},
			[]string{"tls_key_file (POSTRIDER_TLS_KEY_FILE): " + key + " is not the unencrypted PEM key"}},
		{"sender", map[string]string{"NOTICE_FROM": "Acme, Inc <notices@example.com>"},
			[]string{`notice_from (POSTRIDER_NOTICE_FROM): "Acme, Inc <notices@example.com>": The display name has`}},
		{"bucket", map[string]string{"BLOB_URL": "s3://mail?region=eu-west-1&prefx=a"},
			[]string{`blob_url (POSTRIDER_BLOB_URL): blob store: the parameter "prefx" is unknown`}},
	} {
		before := maps.Clone(p.vars)
		for name, value := range c.vars {
			p.vars["POSTRIDER_"+name] = value
		}
		out, errOut, code := p.command("config", "check")
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: it does not print %q:\n%s", c.name, want, out)
			}
		}
		if code != 1 || errOut != "" || strings.Contains(out, "valid\n") {
			t.Errorf("%s: exit code %d, said %q, printed\n%s", c.name, code, errOut, out)
		}
		p.vars = before
	}
	if out := p.must("config", "check"); strings.Contains(out, "warning") {
		t.Errorf("of a valid certificate it prints\n%s", out)
	}
	p.vars["POSTRIDER_NOTICE_FROM"], p.vars["POSTRIDER_ALERT_TO"] = "notices@example.com", "a..b@example.com"
	out := p.must("config", "check")
	if !strings.Contains(out, `warning: alert_to (POSTRIDER_ALERT_TO): "a..b@example.com": The part before`) {
		t.Errorf("of an address for alarms it prints\n%s", out)
	}
	delete(p.vars, "POSTRIDER_ALERT_TO")
	p.certificate(-1)
	p.vars["POSTRIDER_INBOUND_HOST"] = "in.example.com"
	out = p.must("config", "check")
	for _, want := range []string{"the settings are valid\n", "warning: tls_cert_file (POSTRIDER_TLS_CERT_FILE): the " +
		"certificate expired on", "does not cover the host in.example.com"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not print %q:\n%s", want, out)
		}
	}
	q := &printer{p, map[string]bool{}}
	if got := q.json("config", "check"); got["valid"] != true || len(got["warnings"].([]any)) != 2 {
		t.Errorf("in JSON: %v", got)
	}
}

// Files with secrets that other users of the machine can read or change cause a warning of `config check`, and of a node
// that starts. The group of the node's user may read them.
func TestExposedSecretFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "postrider.toml"), filepath.Join(dir, "password")
	for name, text := range map[string]string{secret: "hunter2\n", file: "[[relays]]\nname = \"corp\"\n" +
		"address = \"127.0.0.1:1\"\nusername = \"u\"\npassword_file = \"" + secret + "\"\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := sqliteInstallation(t)
	p.vars["POSTRIDER_CONFIG"] = file
	p.certificate(30)
	key := p.vars["POSTRIDER_TLS_KEY_FILE"]
	for mode, warns := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o660: true, 0o602: true} {
		for _, name := range []string{secret, key} {
			if err := os.Chmod(name, mode); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		p.log = &log
		p.start().end()
		checked := p.must("config", "check")
		for _, name := range []string{secret, key} {
			warning := fmt.Sprintf("other users of this machine can read or change %s (mode %04o): run `chmod g-w,o= %[1]s`",
				name, mode)
			for where, printed := range map[string]string{"config check": checked, "the log": log.String()} {
				if strings.Contains(printed, warning) != warns {
					t.Errorf("mode %04o: %s says\n%s", mode, where, printed)
				}
			}
		}
		if warns && !strings.Contains(checked, "warning: relays.corp.password_file ("+file+":") {
			t.Errorf("config check does not name the place:\n%s", checked)
		}
	}
}

// `config show` prints each setting with its source. Secrets, the user names of relays, and passwords and parameters in
// URLs are masked.
func TestConfigShow(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	file := filepath.Join(t.TempDir(), "postrider.toml")
	if err := os.WriteFile(file, []byte("rate_limit = 5\notlp_endpoint = \"https://u:hunter2@otlp.example\"\n"+
		"relay_addr = \"smtp.example:587\"\nrelay_username = \"hunter2\"\nrelay_password = \"hunter2\"\n"+
		"doctor_clock_url = \"https://clock.example/now?token=hunter2&x=\"\n"+
		"alert_to = [\"https://a.example/?token=hunter2\"]\n"+
		"[[relays]]\nname = \"corp\"\naddress = \"corp.example:25\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &installation{t: t, vars: map[string]string{"POSTRIDER_DATA_DIR": dir, "POSTRIDER_CONFIG": file,
		"POSTRIDER_DATABASE_URL": "postgres://u:hunter2@db.example/x"}}
	out := p.must("config", "show", "--roles", "api")
	rows := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 2 {
			rows[f[0]] = strings.Join(f[1:], " ")
		}
	}
	for key, want := range map[string]string{"rate_limit": "5 " + file + ":1", "database_url": "(set) POSTRIDER_DATABASE_URL",
		"roles": "api --roles", "smtp_port": "25 default", "blob_url": filepath.Join(dir, "blobs") + " derived",
		"relays.corp":   "address corp.example:25; tls opportunistic " + file + ":8",
		"otlp_endpoint": "https://<secret>@otlp.example " + file + ":2", "relay_username": "(set) " + file + ":4",
		"relay_password": "(set) " + file + ":5", "alert_to": "(set) " + file + ":7",
		"doctor_clock_url": "https://clock.example/now?token=<secret>&x= " + file + ":6"} {
		if rows[key] != want {
			t.Errorf("%s is shown as %q, want %q", key, rows[key], want)
		}
	}
	if strings.Contains(out, "hunter2") || len(rows) < 90 {
		t.Errorf("it prints\n%s", out)
	}
	if out := p.must("config", "show", "--changed"); strings.Count(out, "\n") != 10 || strings.Contains(out, "default") {
		t.Errorf("--changed prints\n%s", out)
	}
	p.vars["POSTRIDER_DOCTOR_ADDRESS_LISTS"] = "abcd1234efgh5678ijkl90mnop.zen.list.example,zen.list.example"
	if out := p.must("config", "show", "--changed"); !strings.Contains(out, "(key).zen.list.example,zen.list.example ") ||
		strings.Contains(out, "efgh5678") {
		t.Errorf("with a key of a block list, it prints\n%s", out)
	}
	p.refused("roles (--roles)", "config", "show", "--roles", "cook")
	p.vars["POSTRIDER_OTLP_ENDPOINT"] = "https://otlp.example/?token=hunter2"
	if out, _, code := p.command("config", "check"); code != 1 || !strings.Contains(out, "/?token=<secret>\" must be") ||
		strings.Contains(out, "hunter2") {
		t.Errorf("config check prints %s", out)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the command creates the data folder")
	}
}
