package config

import (
	"io/fs"
	"strings"
	"testing"
)

// Read tells where each value comes from.
func TestSources(t *testing.T) {
	t.Parallel()
	src := source("rate_limit = 5\n\n[regions.eu]\nbounce_host = \"b.example\"\n"+
		"[[ relays ]] # the first\nname = \"a\"\naddress = \"h:25\"\n[[relays]]\nname = \"b\"\naddress = \"i:25\"",
		map[string]string{"POSTRIDER_SMTP_PORT": "26",
			"POSTRIDER_DATABASE_URL": "postgres://u:hunter2@h/d"}, "--roles=api")
	loaded, err := Read(src)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Value{}
	for _, v := range loaded.Values {
		got[v.Key] = v
	}
	for _, want := range []Value{{"rate_limit", "5", FromFile, "postrider.toml:1"},
		{"smtp_port", "26", FromVariable, "POSTRIDER_SMTP_PORT"}, {"roles", "api", FromFlag, "--roles"},
		{"data_dir", "data", FromDefault, ""}, {"blob_url", "data/blobs", FromOthers, ""},
		{"hostname", "node1.example.com", FromOthers, ""}, {"caa_issuer", "letsencrypt.org", FromDefault, ""},
		{"notice_from", "", FromDefault, ""}, {"log_level", "info", FromDefault, ""},
		{"database_url", "(set)", FromVariable, "POSTRIDER_DATABASE_URL"},
		{"regions.eu.bounce_host", "b.example", FromFile, "postrider.toml:4"},
		{"relays.a", "address h:25; tls opportunistic", FromFile, "postrider.toml:5"},
		{"relays.b", "address i:25; tls opportunistic", FromFile, "postrider.toml:8"}} {
		if got[want.Key] != want {
			t.Errorf("%+v, want %+v", got[want.Key], want)
		}
	}
	_, err = Read(source("rate_limit = -1", nil, "--transport=pigeon"))
	problems := Problems(err)
	if len(problems) != 2 || problems[0].Setting != "rate_limit" || problems[0].Place != "postrider.toml:1" ||
		!strings.HasPrefix(problems[0].Message(), "is -1") || problems[1].Place != "--transport" {
		t.Errorf("problems %+v", problems)
	}
	if Problems(fs.ErrExist) != nil || Problems(nil) != nil {
		t.Error("another error has problems")
	}
}

// The problems with a URL do not show its password. The clock of a server is asked for without one.
func TestProblemsHidePasswords(t *testing.T) {
	t.Parallel()
	_, err := Read(source(`otlp_endpoint = "https://u:hunter2@otlp.example/?x"
		doctor_clock_url = "https://u:hunter2@clock.example/"`, nil))
	problems := Problems(err)
	if len(problems) != 2 {
		t.Fatalf("problems %v", err)
	}
	for _, p := range problems {
		for _, text := range []string{p.Message(), p.Error()} {
			if strings.Contains(text, "hunter2") || !strings.Contains(text, ".example/") {
				t.Errorf("the problem is %q", text)
			}
		}
	}
}

// A variable that looks like a setting but is not one is refused with the nearest name. Variables that commands, tests
// and Kubernetes set are not.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"POSTRIDER_DATABSE_URL": "POSTRIDER_DATABSE_URL: there is no such setting; did you mean POSTRIDER_DATABASE_URL?",
		"POSTRIDER_COLOUR":      "POSTRIDER_COLOUR: there is no such setting; docs/configuration.md lists all settings",
		"POSTRIDER_CONFG":       "did you mean POSTRIDER_CONFIG?",
		"POSTRIDER_REGIONS":     "there is no such setting",
		"POSTRIDER_HTTP_PORT":   "there is no such setting",
		"POSTRIDER_SMTP_PORT":   `smtp_port (POSTRIDER_SMTP_PORT): "x" is not a whole number`,
	} {
		_, err := Load(source("", map[string]string{name: "x"}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	links := map[string]string{}
	for _, prefix := range []string{"POSTRIDER", "POSTRIDER_SMTP", "POSTRIDER_EU_2"} {
		for name, value := range map[string]string{"SERVICE_HOST": "10.96.0.7", "SERVICE_PORT": "8080",
			"SERVICE_PORT_HTTP": "8080", "PORT": "tcp://10.96.0.7:8080", "PORT_8080_TCP": "tcp://[fd00::7]:8080",
			"PORT_8080_TCP_PROTO": "tcp", "PORT_8080_TCP_PORT": "8080", "PORT_8080_TCP_ADDR": "10.96.0.7"} {
			links[prefix+"_"+name] = value
		}
	}
	for _, name := range []string{"POSTRIDER_API_KEY", "POSTRIDER_BACKUP_PASSPHRASE", "POSTRIDER_PROMOTE_TO",
		"POSTRIDER_TEST_POSTGRES", "POSTRIDER_BENCH_UNSIGNED"} {
		links[name] = "x"
	}
	links["POSTRIDER_COLOUR"] = "" // counts as not set
	if c := load(t, source("", links)); c.SMTPPort != 25 {
		t.Errorf("smtp_port is %d", c.SMTPPort)
	}
}

// With the system's configuration file, its file with variables is read too. The variables of the process override it.
func TestSystemVariables(t *testing.T) {
	t.Parallel()
	const text = "# secrets\n\n POSTRIDER_RATE_LIMIT=7\nPOSTRIDER_SMTP_PORT=26\nAWS_ACCESS_KEY_ID=x\n" +
		"AWS_ACCESS_KEY_ID='a b'\n"
	files := map[string]any{SystemFile: "rate_limit = 5", SystemVariables: text}
	src := Source{SystemFile: SystemFile, SystemVariables: SystemVariables, Environ: environ(map[string]string{
		"POSTRIDER_SMTP_PORT": "27"}), ReadFile: func(name string) ([]byte, error) {
		switch v := files[name].(type) {
		case string:
			return []byte(v), nil
		case error:
			return nil, v
		}
		return nil, fs.ErrNotExist
	}}
	loaded, err := Read(src)
	if err != nil {
		t.Fatal(err)
	}
	if c := loaded.Config; c.RateLimit != 7 || c.SMTPPort != 27 || len(loaded.Variables) != 2 ||
		loaded.Variables["AWS_ACCESS_KEY_ID"] != "a b" {
		t.Errorf("rate_limit %d, smtp_port %d, variables %q", c.RateLimit, c.SMTPPort, loaded.Variables)
	}
	for _, v := range loaded.Values {
		if want := "POSTRIDER_RATE_LIMIT in /etc/postrider/environment:3"; v.Key == "rate_limit" && v.Place != want {
			t.Errorf("%+v", v)
		}
	}
	refused := func(want string) {
		t.Helper()
		if _, err := Load(src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	files[SystemVariables] = "POSTRIDER_RATE_LIMT=7\n"
	refused("POSTRIDER_RATE_LIMT in /etc/postrider/environment:1: there is no such setting; did you mean POSTRIDER_RATE_LIMIT?")
	files[SystemVariables] = "rate_limit: 7"
	refused("/etc/postrider/environment:1: the line is no variable; write NAME=VALUE")
	files[SystemVariables] = fs.ErrPermission
	refused("run this command as the user of the node")
	files[DefaultFile] = "rate_limit = 6" // another installation, which has its own variables
	if c := load(t, src); c.RateLimit != 6 {
		t.Errorf("rate_limit is %d", c.RateLimit)
	}
	delete(files, DefaultFile)
	delete(files, SystemVariables)
	if c := load(t, src); c.RateLimit != 5 {
		t.Errorf("rate_limit is %d", c.RateLimit)
	}
}

// Values are read as systemd reads them.
func TestReadVariables(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{`A=b`: "b", `A=b c `: "b c", `A="b # c"`: "b # c", `A='b\"c'`: `b\"c`,
		`A="b\"c\d"`: `b"c\d`, `A=b\ c`: "b c", `A=`: "", `A=b=c`: "b=c", `A='b'"c"d`: "bcd", `A=b#c`: "b#c"} {
		for v, err := range readVariables(line) {
			if err != nil || v.name != "A" || v.text != want {
				t.Errorf("%s: %+v, %v; want %q", line, v, err, want)
			}
		}
	}
	for _, line := range []string{`A`, `A B=c`, `1A=b`, `export A=b`, `A="b`, `A=b\`} {
		for v, err := range readVariables(line) {
			if err == nil {
				t.Errorf("%s is read as %+v", line, v)
			}
		}
	}
}
