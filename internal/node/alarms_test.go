package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/docs"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/outbound/alarms"
	"github.com/postrider/postrider/internal/platform/certs"
	"github.com/postrider/postrider/internal/platform/telemetry"
)

// Each alarm begins and ends at its limits.
func TestAlarmConditions(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	n := &Node{Config: config.Config{AlertQueueAge: 10 * time.Minute, AlertBackupAge: 2 * day}}
	postgres := &Node{Config: config.Config{AlertBackupAge: 2 * day, DatabaseURL: "postgres://x"}}
	off := &Node{}
	queue := func(of *Node, age time.Duration) alarms.Condition {
		return of.queueCondition(&telemetry.Installation{Queue: map[string]telemetry.Backlog{"single": {Due: 3, Oldest: age},
			"bulk": {Due: 1000, Oldest: 5 * day}}})
	}
	backup := func(of *Node, age, installed time.Duration) alarms.Condition {
		i := &telemetry.Installation{Created: now.Add(-installed)}
		if age > 0 {
			i.LastBackup = now.Add(-age)
		}
		return of.backupCondition(i, now)
	}
	disk := func(free uint64) alarms.Condition {
		return diskCondition(telemetry.Disk{Folder: "data_dir", Free: free << 30, Size: 100 << 30}, "mail1")
	}
	certificate := func(left time.Duration) alarms.Condition {
		c := telemetry.CertificateExpiry{Source: certs.FromFiles, Name: "x.pem", NotAfter: now.Add(left)}
		return certificateCondition(c, "mail1", now)
	}
	for _, x := range []struct {
		name      string
		got       alarms.Condition
		bad, good bool
		text      string
	}{
		{"disk", disk(9), true, false, "9216 MB free of 102400 MB"}, {"disk between", disk(11), false, false, ""},
		{"disk again", disk(12), false, true, ""},
		{"certificate", certificate(13 * day), true, false, "x.pem on mail1 expires"},
		{"certificate later", certificate(14 * day), false, true, ""},
		{"expired", certificate(-day), true, false, ""},
		{"queue", queue(n, 11*time.Minute), true, false, "3 emails"},
		{"queue between", queue(n, 9*time.Minute), false, false, ""},
		{"queue again", queue(n, 5*time.Minute), false, true, ""}, {"queue off", queue(off, day), false, true, ""},
		{"backup", backup(n, 3*day, 9*day), true, false, "2026-11-27T12:00:00Z"},
		{"new backup", backup(n, day, 9*day), false, true, ""},
		{"no backup", backup(n, 0, 3*day), true, false, "No backup of this database was recorded"},
		{"new installation", backup(n, 0, day), false, true, ""},
		{"PostgreSQL", backup(postgres, 3*day, 9*day), true, false, ""},
		{"PostgreSQL without a recorded backup", backup(postgres, 0, 9*day), true, false, "alert_backup_age"},
		{"new PostgreSQL", backup(postgres, 0, day), false, true, ""},
		{"backup off", backup(off, 9*day, 9*day), false, true, ""},
	} {
		if x.got.Bad != x.bad || x.got.Good != x.good || !strings.Contains(x.got.Text, x.text) || x.got.Title == "" {
			t.Errorf("%s: %+v", x.name, x.got)
		}
		if alarmPages[x.got.Cause] == "" {
			t.Errorf("%s: no page says what to do about the alarm %s", x.name, x.got.Cause)
		}
	}
	if d, c := disk(9), certificate(day); d.Node != "mail1" || c.Node != "mail1" || queue(n, day).Node != "" {
		t.Error("an alarm has the wrong node")
	}
}

// The text of an alarm leads to a heading of the documentation that says what to do.
func TestAlarmPages(t *testing.T) {
	t.Parallel()
	for cause, page := range alarmPages {
		name, heading, _ := strings.Cut(page, "#")
		text, err := fs.ReadFile(docs.Files, "operating/"+name+".md")
		if err != nil {
			t.Fatal(err)
		}
		title := "\n## " + strings.ReplaceAll(heading, "-", " ") + "\n"
		if !strings.Contains(strings.ToLower(string(text)), title) {
			t.Errorf("%s: %s.md has no heading %s", cause, name, heading)
		}
	}
	want := "\n\nWhat to do: https://mail.example.com/docs/operating/troubleshooting#the-disk-is-full"
	if got := helpWith("disk.data_dir", "https://mail.example.com"); got != want {
		t.Errorf("the help is %q", got)
	}
	if got := helpWith("disk.data_dir", "http://localhost:8080"); got != "" {
		t.Errorf("the help leads to an address that only the node's machine can open: %q", got)
	}
}

// A host without a certificate is a problem once a request has failed, or after some minutes. /readyz does not show the
// whole reason to everybody; the alarm does.
func TestMissingCertificates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	n := &Node{Config: config.Config{Hostname: "mail1"}, observation: observation{certificates: &certificateList{}}}
	l := n.certificates
	host := func(name, failed string, expires time.Duration) certs.Status {
		s := certs.Status{Names: []string{name}, Own: true, Source: certs.FromACME, LastError: failed}
		if expires != 0 {
			s.NotAfter = now.Add(expires)
		}
		return s
	}
	missing := func(at time.Time) alarms.Condition {
		t.Helper()
		all := n.certificateConditions(at)
		if len(all) != 3 {
			t.Fatalf("%+v", all)
		}
		return all[2]
	}
	if _, ok := l.count(); ok || n.certificateConditions(now) != nil || l.check(t.Context()) != nil {
		t.Error("a list that was not read says something")
	}
	const hour = time.Hour
	l.set([]certs.Status{host("a.example", "", 0), host("b.example", "", 99*24*hour)}, now)
	if c := missing(now); c.Bad || c.Good || l.check(t.Context()) != nil {
		t.Errorf("a host that waits: %+v", c)
	}
	if c := missing(now.Add(certificateWait)); !c.Bad || !strings.Contains(c.Text, "a.example: no request has ended") {
		t.Errorf("a host that has waited for long: %+v", c)
	}
	const reason = "HTTP 400 urn:ietf:params:acme:error:connection - 203.0.113.9: refused"
	customer := host("links.customer.example", reason, 0)
	customer.Own = false
	l.set([]certs.Status{host("a.example", reason, 0), host("b.example", reason, -hour), customer}, now)
	if count, ok := l.count(); count != 2 || !ok {
		t.Errorf("%d hosts", count)
	}
	if c := missing(now); !c.Bad || !strings.Contains(c.Text, "203.0.113.9: refused") || c.Node != "mail1" {
		t.Errorf("after a failed request: %+v", c)
	}
	err := l.check(t.Context())
	if err == nil || strings.Contains(err.Error(), "203.0.113.9") || !strings.Contains(err.Error(),
		"a.example has no valid certificate: the authority could not connect to the host (2 hosts have none)") {
		t.Errorf("the check says %v", err)
	}
	l.set([]certs.Status{host("a.example", "", hour)}, now)
	if c := missing(now); !c.Good || l.check(t.Context()) != nil {
		t.Errorf("after a success: %+v", c)
	}
	if all := n.certificateConditions(now); !all[0].Good || all[1].Good { // none from files; one expires in an hour
		t.Errorf("%+v", all)
	}
}

// An invalid file of destinations is a problem until it is corrected. The alarm names the first problems of the file.
func TestDestinationsAlarm(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "destinations.toml")
	n := &Node{Config: config.Config{Hostname: "mail1", DestinationsFile: file},
		observation: observation{certificates: &certificateList{}, disks: &disks{}}}
	condition := func(text string) alarms.Condition {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n.destinations.take(readDestinations(n.Config))
		for _, c := range n.nodeConditions() {
			if c.Cause == "destinations" {
				return c
			}
		}
		t.Fatal("no condition")
		return alarms.Condition{}
	}
	if c := condition("[a]\ndomains = [\"a.example\"]\nconections = 1"); !c.Bad || c.Good || c.Node != "mail1" ||
		!strings.Contains(c.Text, "[a].conections: is unknown") || strings.Contains(c.Text, "further") {
		t.Errorf("%+v", c)
	}
	if c := condition("[a]\n" + manyKeys(13)); !strings.Contains(c.Text, "There are 3 further") {
		t.Errorf("%+v", c)
	}
	if c := condition("[a]\ndomains = [\"a.example\"]"); c.Bad || !c.Good {
		t.Errorf("%+v", c)
	}
}

// manyKeys returns lines with unknown keys.
func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "key%d = 1\n", i)
	}
	return b.String()
}

// Expensive measurements are seldom. A measurement that failed because the database was away is soon repeated.
func TestPauseAfterMeasurement(t *testing.T) {
	t.Parallel()
	away := errors.New("the database is away")
	for _, x := range []struct {
		took time.Duration
		err  error
		want time.Duration
	}{{time.Millisecond, nil, measureEvery}, {10 * time.Second, nil, 500 * time.Second}, {measureTime, away, measureAgain},
		{time.Millisecond, away, measureEvery}} {
		if got := pauseAfter(x.took, x.err); got != x.want {
			t.Errorf("after %s, %v: %s", x.took, x.err, got)
		}
	}
}

// The disk of data_dir is measured once, also if the blobs are there.
func TestDisks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		blobs string
		want  int // folders
	}{{dir + "/blobs", 2}, {"file://" + dir + "/blobs", 2}, {"s3://bucket?region=x", 1}, {"mem://", 1}} {
		if got := diskFolders(config.Config{DataDir: dir, BlobURL: c.blobs}); len(got) != c.want ||
			c.want == 2 && got[1].path != dir+"/blobs" {
			t.Errorf("%s: %+v", c.blobs, got)
		}
	}
	d := &disks{folders: []diskFolder{{"data_dir", dir}, {"blob_url", dir}}}
	all, err := d.measure()
	if err != nil || len(all) != 1 || all[0].Size == 0 || all[0].Free > all[0].Size || len(d.last()) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := d.checkFull(); err != nil {
		t.Error(err)
	}
	gone := &disks{folders: []diskFolder{{"data_dir", dir + "/gone"}}}
	if gone.checkFull() == nil || gone.checkSpace() == nil {
		t.Error("a missing folder has a disk")
	}
}
