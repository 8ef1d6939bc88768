package cli

import (
	"bytes"
	"context"
	"flag"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/dkim/dkimtest"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	// More tests than there are CPUs run in parallel, because tests mostly wait for nodes. The flag -test.parallel
	// overrides this limit.
	flag.Set("test.parallel", "6")
	dbtest.Main(m)
}

// asProgram is the variable that makes the test program act as postrider, for shell commands that a test runs.
const asProgram = "POSTRIDER_TEST_AS_PROGRAM"

// installation holds the data folder and the environment that a test's node and its commands share.
type installation struct {
	t    *testing.T
	vars map[string]string
	dir  string

	options node.Options
	log     io.Writer // for the logs of nodes; nil discards them
}

// testSecretKey is the secret key of the tests' installations.
var testSecretKey = strings.Repeat("5e", 32)

// eachEngine runs f once with SQLite and once with PostgreSQL.
func eachEngine(t *testing.T, f func(t *testing.T, p *installation)) {
	t.Helper()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) { f(t, migratedInstallation(t, engine)) })
	}
}

// migratedInstallation returns an installation with an empty, migrated database.
func migratedInstallation(t *testing.T, engine string) *installation {
	t.Helper()
	p := &installation{t: t, dir: filepath.Join(t.TempDir(), "data")}
	p.vars = map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": p.dir}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if engine == "postgres" {
		p.vars["POSTRIDER_DATABASE_URL"] = dbtest.PostgresURL(t)
	} else {
		dbtest.WriteSQLite(t, filepath.Join(p.dir, "postrider.db"))
	}
	p.secretKey()
	return p
}

// command runs a command in the same way as the program would.
func (p *installation) command(args ...string) (out, errOut string, code int) {
	var o, e bytes.Buffer
	code = Main(args, p.environ(), &o, &e)
	return o.String(), e.String(), code
}

// environ returns the variables of the installation as NAME=value.
func (p *installation) environ() (all []string) {
	for name, value := range p.vars {
		all = append(all, name+"="+value)
	}
	return all
}

// must runs a command, fails the test if the command fails, and returns the output.
func (p *installation) must(args ...string) string {
	p.t.Helper()
	out, errOut, code := p.command(args...)
	if code != 0 {
		p.t.Fatalf("postrider %q: exit code %d\n%s%s", args, code, out, errOut)
	}
	return strings.TrimSpace(out)
}

// key creates an API key, and its team if it does not exist, and returns the key. The installation gets its secret key
// before, if it has none: a command makes no secret key.
func (p *installation) key(team string, flags ...string) string {
	p.t.Helper()
	p.secretKey()
	return p.must(append([]string{"keys", "create", "--create-team", "--team", team}, flags...)...)
}

// secretKey writes the secret key, unless there is one.
func (p *installation) secretKey() {
	p.t.Helper()
	file := filepath.Join(p.dir, "secret.key")
	if _, err := os.Stat(file); err == nil || p.vars["POSTRIDER_SECRET_KEY"] != "" {
		return
	}
	if err := os.WriteFile(file, []byte(testSecretKey), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// refused runs a command that must fail with an error message that contains the given text.
func (p *installation) refused(say string, args ...string) {
	p.t.Helper()
	if out, errOut, code := p.command(args...); code == 0 || !strings.Contains(errOut, say) || out != "" {
		p.t.Errorf("postrider %q: exit code %d, printed %q, and said %q; want %q", args, code, out, errOut, say)
	}
}

// config returns the node's configuration: the defaults for `postrider dev`, overridden by p.vars.
func (p *installation) config() config.Config {
	p.t.Helper()
	defaults := maps.Clone(devDefaults)
	maps.Copy(defaults, map[string]string{"http_listen": "127.0.0.1:0", "smtp_submit_listen": "127.0.0.1:0",
		"roles": "api,delivery,jobs,submission"})
	c, err := config.Load(config.Source{Defaults: defaults, Environ: p.environ})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// devTestKey is the development key of the tests' nodes. It opens the outbox from other machines.
const devTestKey = "re_development_key"

// started is a running node.
type started struct {
	*node.Node
	t    *testing.T
	url  string
	end  func()    // stops the node; after the first call, it does nothing
	look db.Reader // used for the test's own queries
}

// start opens a node, calls each of the given functions, and then runs the node until the test ends.
func (p *installation) start(before ...func(n *node.Node)) *started {
	p.t.Helper()
	c := p.config()
	l, err := net.Listen("tcp", c.HTTPListen)
	if err != nil {
		p.t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if p.vars["POSTRIDER_PUBLIC_URL"] == "" {
		c.PublicURL = url
	}
	log := p.log
	if log == nil {
		log = io.Discard
	}
	n, err := node.Open(p.t.Context(), c, newLogger(c, log), p.options)
	if err != nil {
		p.t.Fatal(err)
	}
	n.Domains.GenerateRSA = dkimtest.RSA
	if err := n.ListenSubmission(); err != nil {
		p.t.Fatal(err)
	}
	if err := n.ServeOutbox(devTestKey); err != nil {
		p.t.Fatal(err)
	}
	for _, f := range before {
		f(n)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx, l) }()
	end := sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			p.t.Errorf("the node ended with %v", err)
		}
		n.Close()
	})
	p.t.Cleanup(end)
	return &started{n, p.t, url, end, n.DB.Reader}
}

// ask makes a request to the API and returns the status and the body of the response.
func (n *started) ask(key, method, path, body string) (int, string) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), method, n.url+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// eventually waits until a condition is true.
var eventually = testnode.Until

// count returns the result of a query that selects a single number.
func (n *started) count(query string, args ...any) (found int) {
	n.t.Helper()
	if err := n.look.QueryRow(n.t.Context(), query, args...).Scan(&found); err != nil {
		n.t.Fatal(err)
	}
	return found
}
