//go:build chaos && failover

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/freeport"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	ttl          = 20 * time.Second // time after which Patroni replaces a leader that no longer renews its lock
	patroniCount = 3
)

// patroni is a PostgreSQL cluster of three servers that Patroni manages, with etcd.
type patroni struct {
	t       *testing.T
	dir     string
	attr    *syscall.SysProcAttr
	bin     string // folder of PostgreSQL's programs
	etcd    *exec.Cmd
	members [patroniCount]member
}

// member is one server of the cluster, with its Patroni.
type member struct {
	name, config, data string
	api, postgres      string // addresses
	cmd                *exec.Cmd
}

// startPatroni starts etcd and three servers, and waits until two of them are synchronous standbys.
func startPatroni(t *testing.T) *patroni {
	t.Helper()
	for _, name := range []string{"patroni", "etcd"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%v\nInstall Patroni and etcd (as root, `make failover` does; otherwise: sudo apt-get install patroni "+
				"etcd-server).", err)
		}
	}
	initdb, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(initdb) == 0 {
		t.Fatalf("found no /usr/lib/postgresql/*/bin/initdb: %v", err)
	}
	p := &patroni{t: t, bin: filepath.Dir(initdb[len(initdb)-1]), attr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}}
	if os.Getuid() != 0 {
		t.Fatal("Each server of this test gets a namespace of processes, which needs root: run it as root.")
	}
	if p.dir, err = os.MkdirTemp("", "postrider-failover-"); err != nil {
		t.Fatal(err)
	}
	owner := credential(t, "postgres") // PostgreSQL does not run as root
	p.attr.Credential = owner
	if err := os.Chown(p.dir, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.remove)
	etcd := p.startEtcd()
	for i := range p.members {
		m := &p.members[i]
		m.name, m.api, m.postgres = fmt.Sprintf("pg%d", i+1), freeport.Addr(t), freeport.Addr(t)
		m.data, m.config = filepath.Join(p.dir, m.name), filepath.Join(p.dir, m.name+".yml")
		text := fmt.Sprintf(patroniConfig, m.name, m.api, etcd, int(ttl.Seconds()), m.postgres, m.data, p.bin, p.dir)
		if err := os.WriteFile(m.config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		p.start(i)
	}
	eventually(t, 2*time.Minute, "all three servers run, two as synchronous standbys", p.complete)
	return p
}

// patroniConfig has the settings that docs/operating/failover.md recommends. Other settings suit a test on one machine.
const patroniConfig = `scope: postrider
name: %[1]s
restapi: {listen: '%[2]s', connect_address: '%[2]s'}
etcd3: {host: '%[3]s'}
bootstrap:
  dcs:
    ttl: %[4]d
    loop_wait: 5
    retry_timeout: 5
    synchronous_mode: true
    synchronous_mode_strict: true
    synchronous_node_count: 2
    postgresql:
      use_pg_rewind: true
      parameters: {wal_retrieve_retry_interval: 500ms, max_connections: 200, wal_log_hints: 'on', fsync: 'off',
        shared_buffers: 64MB, jit: 'off'}
  initdb: [{encoding: UTF8}, {locale: C}, no-sync]
postgresql:
  listen: '%[5]s'
  connect_address: '%[5]s'
  data_dir: '%[6]s'
  bin_dir: '%[7]s'
  pgpass: '%[6]s.pgpass'
  remove_data_directory_on_diverged_timelines: true
  authentication:
    superuser: {username: postgres}
    replication: {username: postgres}
    rewind: {username: postgres}
  pg_hba: ['local all all trust', 'host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust']
  parameters: {unix_socket_directories: '%[8]s'}
`

func credential(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// run starts a program whose output goes to a file in the cluster's folder.
func (p *patroni) run(attr *syscall.SysProcAttr, output, name string, args ...string) *exec.Cmd {
	p.t.Helper()
	log, err := os.OpenFile(filepath.Join(p.dir, output), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	c := exec.Command(name, args...)
	c.Dir, c.Stdout, c.Stderr, c.SysProcAttr = p.dir, log, log, attr
	c.Env = append(os.Environ(), "HOME="+p.dir)
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	return c
}

func (p *patroni) startEtcd() (address string) {
	address = freeport.Addr(p.t)
	client, peer := "http://"+address, "http://"+freeport.Addr(p.t)
	c := p.run(p.attr, "etcd.log", "etcd", "--data-dir", filepath.Join(p.dir, "etcd"), "--listen-client-urls", client,
		"--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer)
	p.etcd = c
	eventually(p.t, 30*time.Second, "etcd answers", func() bool {
		return getJSON("http://"+address+"/health", nil) == nil
	})
	return address
}

// start starts a member as the first process of a namespace of processes, with a /proc of its own. Patroni needs to see
// its server there, and as the first process it removes ended servers, which it takes for running until then.
func (p *patroni) start(i int) {
	m := &p.members[i]
	m.cmd = p.run(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, m.name+".log", "unshare", "--mount-proc",
		"setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig=KILL", "patroni", m.config)
}

// url returns the URL that names all servers and leads to the one that accepts writes.
func (p *patroni) url() string {
	var hosts []string
	for _, m := range p.members {
		hosts = append(hosts, m.postgres)
	}
	return "postgres://postgres@" + strings.Join(hosts, ",") +
		"/postgres?sslmode=disable&connect_timeout=3&target_session_attrs=read-write"
}

func getJSON(url string, out any) error {
	r, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, r.Status)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(r.Body).Decode(out)
}

// roles returns the members' roles by name, without members that do not run.
func (p *patroni) roles() map[string]string {
	for _, m := range p.members {
		var c struct {
			Members []struct{ Name, Role, State string }
		}
		if getJSON("http://"+m.api+"/cluster", &c) != nil {
			continue
		}
		all := map[string]string{}
		for _, m := range c.Members {
			if m.State == "running" || m.State == "streaming" {
				all[m.Name] = m.Role
			}
		}
		return all
	}
	return nil
}

// complete reports whether all servers run: a leader and synchronous standbys.
func (p *patroni) complete() bool {
	leaders, standbys := 0, 0
	for _, role := range p.roles() {
		switch role {
		case "leader":
			leaders++
		case "sync_standby":
			standbys++
		}
	}
	return leaders == 1 && standbys == patroniCount-1
}

// with returns the index of the member with the given role, or -1.
func (p *patroni) with(roles map[string]string, role string) int {
	return slices.IndexFunc(p.members[:], func(m member) bool { return roles[m.name] == role })
}

// switchover makes a synchronous standby the leader.
func (p *patroni) switchover() {
	all := p.roles()
	leader, next := p.members[p.with(all, "leader")], p.members[p.with(all, "sync_standby")]
	body, _ := json.Marshal(map[string]string{"leader": leader.name, "candidate": next.name})
	r, err := http.Post("http://"+leader.api+"/switchover", "application/json", bytes.NewReader(body))
	if err != nil {
		p.t.Error(err)
		return
	}
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusOK {
		p.t.Errorf("the switchover failed: %s: %s", r.Status, text)
	}
}

// killLeader kills the leader's Patroni and all processes of its server, as if the machine lost power.
// The machine starts again once there is another leader.
func (p *patroni) killLeader() {
	i := p.with(p.roles(), "leader")
	p.kill(i)
	lost := p.members[i].name
	if !within(ttl+30*time.Second, func() bool {
		next := p.with(p.roles(), "leader")
		return next >= 0 && next != i
	}) {
		p.t.Errorf("no other server became the leader after %s was killed", lost)
	}
	p.start(i)
}

// probe writes to the cluster ten times a second until stop is closed, and returns the times of successful commits.
func (p *patroni) probe(stop <-chan struct{}) (commits []time.Time) {
	ctx := context.Background()
	var d *db.DB
	defer func() {
		if d != nil {
			d.Close()
		}
	}()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-stop:
			tick.Stop()
			return commits
		case <-tick.C:
		}
		var err error
		if d == nil {
			if d, err = db.Open(ctx, db.Options{URL: p.url(), MaxConns: 1, Beside: true}); err != nil {
				continue
			}
		}
		err = d.Update(ctx, func(tx *db.Tx) error {
			tx.Queue(ctx, `SELECT pg_logical_emit_message(TRUE, 'probe', '')`)
			return nil
		})
		if err == nil {
			commits = append(commits, time.Now())
		}
	}
}

// kill sends SIGKILL to the first process of a member's namespace, with which all other processes in it are killed.
func (p *patroni) kill(i int) {
	m := &p.members[i]
	if m.cmd == nil {
		return
	}
	m.cmd.Process.Kill()
	m.cmd.Wait()
	m.cmd = nil
}

func (p *patroni) remove() {
	for i := range p.members {
		if p.t.Failed() {
			text, _ := os.ReadFile(filepath.Join(p.dir, p.members[i].name+".log"))
			p.t.Logf("%s said:\n%s", p.members[i].name, text[max(0, len(text)-3000):])
		}
		p.kill(i)
	}
	if p.etcd != nil {
		p.etcd.Process.Kill()
		p.etcd.Wait()
	}
	os.RemoveAll(p.dir)
}

// forwarder forwards connections to the leader, as HAProxy does with Patroni's health checks.
type forwarder struct {
	p *patroni

	mu     sync.Mutex
	leader string // address of the leader's server; empty while it is not known
	conns  map[net.Conn]bool
}

// forward starts a forwarder and returns its URL.
func (p *patroni) forward() (url string) {
	p.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	f := &forwarder{p: p, conns: map[net.Conn]bool{}}
	done := make(chan struct{})
	p.t.Cleanup(func() { close(done); l.Close(); f.follow("") })
	f.check()
	go func() {
		for tick := time.NewTicker(500 * time.Millisecond); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
				f.check()
			}
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return "postgres://postgres@" + l.Addr().String() + "/postgres?sslmode=disable"
}

// check asks each Patroni whether it is the leader.
func (f *forwarder) check() {
	for _, m := range f.p.members {
		if getJSON("http://"+m.api+"/primary", nil) == nil {
			f.follow(m.postgres)
			return
		}
	}
	f.follow("")
}

// follow closes all connections if the leader is another one.
func (f *forwarder) follow(leader string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if leader == f.leader {
		return
	}
	f.leader = leader
	for c := range f.conns {
		c.Close()
	}
}

func (f *forwarder) serve(client net.Conn) {
	defer client.Close()
	f.mu.Lock()
	leader := f.leader
	f.mu.Unlock()
	server, err := net.DialTimeout("tcp", leader, 2*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	f.mu.Lock()
	f.conns[client], f.conns[server] = true, true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, client)
		delete(f.conns, server)
	}()
	go func() {
		io.Copy(server, client)
		server.Close()
	}()
	io.Copy(client, server)
}
