package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/outbound/alarms"
	"github.com/postrider/postrider/internal/platform/certs"
	"github.com/postrider/postrider/internal/platform/telemetry"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/domainreports"
)

const (
	alarmEvery = time.Minute
	// diskOver is the part of a disk that must be free again before the alarm ends.
	diskOver = 0.12
	// certificateMin is how long a certificate must be valid. Automatic renewal begins much earlier.
	certificateMin = 14 * 24 * time.Hour
	// staleAfter is the age from which the figures of the installation are measured again for the alarms.
	staleAfter = 5 * time.Minute
)

// newAlarms builds the service that tells the operator of problems. It is idle unless alert_to is set.
func (n *Node) newAlarms() (err error) {
	if n.o.Beside {
		return nil
	}
	n.Alarms, err = alarms.New(alarms.Config{To: receivers(n.Config), Node: n.Config.Hostname}, alarms.Deps{DB: n.DB,
		Queue: n.Queue, Log: n.Log, Mail: n.Notifications.Mail, MailNow: n.mailNow})
	return err
}

// receivers returns who is told of problems.
func receivers(c config.Config) []string {
	to := make([]string, len(c.AlertTo))
	for i, s := range c.AlertTo {
		to[i] = string(s)
	}
	return to
}

// mailNow sends an email from the operator's team without the queue.
func (n *Node) mailNow(ctx context.Context, to, subject, text string) error {
	from, err := message.ParseFrom(n.Config.NoticeFrom)
	if err != nil {
		return fmt.Errorf("notice_from: %w", err)
	}
	rcpt, err := message.ParseAddress(to)
	if err != nil {
		return fmt.Errorf("alert_to: %w", err)
	}
	team, err := n.Teams.Operator(ctx, n.Config.OperatorTeam)
	if err != nil {
		return fmt.Errorf("find the operator's team: %w", err)
	}
	m := message.Message{ID: "<" + id.New() + "@" + n.Config.Hostname + ">", Date: time.Now(), From: from,
		To: []message.Address{rcpt}, Subject: subject, Text: text}
	body, err := m.Compose()
	if err != nil {
		return fmt.Errorf("compose an alarm: %w", err)
	}
	return n.Delivery.SendUnqueued(ctx, team.ID, from.Addr(), rcpt.Addr(), body)
}

// watchNode reports the conditions of this node until ctx ends.
func (n *Node) watchNode(ctx context.Context) {
	tick := time.NewTicker(alarmEvery)
	defer tick.Stop()
	for {
		if n.Alarms.Active() {
			if err := n.report(ctx, n.nodeConditions()); err != nil && ctx.Err() == nil {
				n.Log.Error("an alarm about this node could not be handled", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watchInstallation reports the conditions of the whole installation. One node at a time does so.
func (n *Node) watchInstallation(ctx context.Context) error {
	if !n.Alarms.Active() {
		return nil
	}
	i := n.metrics.Installation()
	if i == nil || time.Since(i.At) > staleAfter {
		if err := n.measureOnce(ctx); err != nil {
			return err
		}
		i = n.metrics.Installation()
	}
	defects, err := n.Reports.Defects(ctx)
	if err != nil {
		return err
	}
	return n.report(ctx, []alarms.Condition{n.queueCondition(i), n.backupCondition(i, n.DB.Now()),
		signatureCondition(defects)})
}

func (n *Node) report(ctx context.Context, all []alarms.Condition) error {
	var failed error
	for _, c := range all {
		c.Text += helpWith(c.Cause, n.Config.PublicURL)
		failed = errors.Join(failed, n.Alarms.Report(ctx, c))
	}
	return failed
}

// alarmPages are the pages of the documentation that say what to do about an alarm, by its cause.
var alarmPages = map[string]string{
	"queue":               "troubleshooting#emails-wait-and-are-not-sent",
	"disk.data_dir":       "troubleshooting#the-disk-is-full",
	"disk.blob_url":       "troubleshooting#the-disk-is-full",
	"certificate.files":   "troubleshooting#browsers-or-mail-programs-refuse-the-certificate",
	"certificate.acme":    "troubleshooting#browsers-or-mail-programs-refuse-the-certificate",
	"certificate.missing": "https#a-host-has-no-certificate",
	"destinations":        "destinations#the-file-of-destinations-is-invalid",
	"policies":            "dane#a-policy-is-wrong",
	"tlsa":                "tlsa#the-records-do-not-match",
	"dnssec":              "dane#no-server-validates-signatures",
	"dns_zones":           "dns#the-name-server-has-a-problem-with-its-zones",
	"signatures":          "reports#an-alarm-about-signatures",
	"backup":              "backup-and-restore#no-backup-was-recorded",
}

// helpWith returns the end of an alarm's text, which leads to the page that says what to do. It returns "" if only this
// machine can open public_url.
func helpWith(cause, publicURL string) string {
	page := alarmPages[cause]
	if page == "" || isLocal(publicURL) {
		return ""
	}
	return "\n\nWhat to do: " + publicURL + "/docs/operating/" + page
}

// nodeConditions returns the conditions of this node's file of destinations, disks and certificates.
func (n *Node) nodeConditions() []alarms.Condition {
	all := []alarms.Condition{n.destinationsCondition()}
	if n.wantsDNSSEC() {
		all = append(all, n.dnssecCondition())
	}
	if n.Config.Transport == delivery.Direct {
		all = append(all, n.policiesCondition(time.Now()))
	}
	if n.checksTLSA() {
		all = append(all, n.tlsaCondition())
	}
	if n.nameServer.server != nil {
		all = append(all, n.zonesCondition())
	}
	measured, _ := n.disks.measure() // an error concerns one disk; the check disk_space reports it
	for _, d := range measured {
		all = append(all, diskCondition(d, n.Config.Hostname))
	}
	return append(all, n.certificateConditions(time.Now())...)
}

// problemsMax is the maximum number of problems of a file in the text of an alarm.
const problemsMax = 10

// destinationsCondition is about the file of destinations. While it is invalid, the version before stays in use, but
// the node cannot be started again.
func (n *Node) destinationsCondition() alarms.Condition {
	err := n.destinations.problem()
	text := "The file of destinations of " + n.Config.Hostname + " is in use."
	if err != nil {
		problems := strings.Split(err.Error(), "\n")
		text = "The file of destinations of " + n.Config.Hostname + " is invalid, so the version before stays in use. " +
			"Correct the file; the node does not start with it.\n\n" +
			strings.Join(problems[:min(len(problems), problemsMax)], "\n")
		if more := len(problems) - problemsMax; more > 0 {
			text += fmt.Sprintf("\nThere are %d further problems.", more)
		}
	}
	return alarms.Condition{Cause: "destinations", Node: n.Config.Hostname, Bad: err != nil, Good: err == nil,
		Title: "the file of destinations is invalid", Text: text}
}

// certificateConditions returns the conditions of this node's certificates. A source without certificates, for example
// after a change of settings, has no problem.
func (n *Node) certificateConditions(now time.Time) (all []alarms.Condition) {
	expiries, ok := n.certificates.expiries()
	if !ok {
		return nil
	}
	first := map[string]telemetry.CertificateExpiry{}
	for _, c := range expiries {
		if old, ok := first[c.Source]; !ok || c.NotAfter.Before(old.NotAfter) {
			first[c.Source] = c
		}
	}
	for _, source := range []string{certs.FromFiles, certs.FromACME} {
		c, ok := first[source]
		if !ok {
			c = telemetry.CertificateExpiry{Source: source, NotAfter: now.Add(2 * certificateMin)}
		}
		all = append(all, certificateCondition(c, n.Config.Hostname, now))
	}
	waiting, _ := n.certificates.count()
	return append(all, missingCondition(n.certificates.problems(now), waiting, n.Config.Hostname))
}

// missingMax is the maximum number of hosts in the text of an alarm.
const missingMax = 5

// missingCondition is about hosts without a certificate. The hosts in missing are those waiting hosts that are a
// problem.
func missingCondition(missing []certs.Status, waiting int, node string) alarms.Condition {
	var text strings.Builder
	fmt.Fprintf(&text, "%d hosts of %s have no valid certificate from the authority, so clients refuse to connect to "+
		"them. The node requests the certificates again by itself.", len(missing), node)
	for _, s := range missing[:min(len(missing), missingMax)] {
		fmt.Fprintf(&text, "\n\n%s: %s", s.Names[0], cmp.Or(s.LastError, s.Reason()))
		if !s.RetryAt.IsZero() {
			fmt.Fprintf(&text, " (next request: %s)", s.RetryAt.UTC().Format(time.RFC3339))
		}
	}
	return alarms.Condition{Cause: "certificate.missing", Node: node, Bad: len(missing) > 0, Good: waiting == 0,
		Title: "a host has no certificate", Text: text.String()}
}

func diskCondition(d telemetry.Disk, node string) alarms.Condition {
	return alarms.Condition{Cause: "disk." + d.Folder, Node: node, Bad: isLow(d),
		Good:  float64(d.Free) >= diskOver*float64(d.Size),
		Title: "the disk of " + d.Folder + " is nearly full",
		Text: fmt.Sprintf("The disk of %s on %s has %d MB free of %d MB, which is less than %.0f %%. When it is full, the "+
			"node accepts no emails and cannot record deliveries. Free some space, enlarge the disk, or keep data for a "+
			"shorter time (email_retention).", d.Folder, node, d.Free>>20, d.Size>>20, diskLow*100)}
}

func certificateCondition(c telemetry.CertificateExpiry, node string, now time.Time) alarms.Condition {
	left := c.NotAfter.Sub(now)
	text := fmt.Sprintf("The certificate %s on %s expires at %s. Renew it: clients refuse an expired certificate. "+
		"Postrider reads certificate files again when they change.", c.Name, node, c.NotAfter.UTC().Format(time.RFC3339))
	return alarms.Condition{Cause: "certificate." + c.Source, Node: node, Bad: left < certificateMin,
		Good: left >= certificateMin, Title: "a certificate expires soon", Text: text}
}

// queueCondition is about the oldest email that is due. Bulk mail may wait for hours.
func (n *Node) queueCondition(i *telemetry.Installation) alarms.Condition {
	goal, q := n.settings().AlertQueueAge, i.Queue["single"]
	return alarms.Condition{Cause: "queue", Bad: goal > 0 && q.Oldest > goal, Good: goal == 0 || q.Oldest <= goal/2,
		Title: "emails wait too long",
		Text: fmt.Sprintf("%d emails that are not bulk mail are due, and the oldest has waited for %s; alert_queue_age is "+
			"%s. Look at the nodes with the role delivery, at their log, and at `postrider jobs`.", q.Due,
			q.Oldest.Round(time.Second), goal)}
}

// signatureCondition returns the condition of the alarm about DKIM signatures of this installation that other mail
// systems found invalid.
func signatureCondition(defects []domainreports.Defect) alarms.Condition {
	var text strings.Builder
	text.WriteString("DMARC reports of the last two days say that DKIM signatures of this installation fail. Check the " +
		"DNS records of these domains, and check whether a relay or filter changes messages after they are signed.\n")
	for _, d := range defects {
		fmt.Fprintf(&text, "\n%s: %d of %d messages, by %d reporters", d.Domain, d.Failed, d.Messages, d.Reporters)
	}
	return alarms.Condition{Cause: "signatures", Bad: len(defects) > 0, Good: len(defects) == 0,
		Title: "DKIM signatures fail", Text: text.String()}
}

// backupCondition is about the last backup. Before the first one, its time is that of the database's creation, also
// after a move to another database. That holds for both engines: backups of PostgreSQL by other programs are recorded
// by `postrider backup --done-elsewhere`.
func (n *Node) backupCondition(i *telemetry.Installation, now time.Time) alarms.Condition {
	limit, last := n.settings().AlertBackupAge, i.LastBackup
	text := fmt.Sprintf("The last backup of this installation was complete at %s.", last.UTC().Format(time.RFC3339))
	if last.IsZero() {
		last = i.Created
		text = fmt.Sprintf("No backup of this database was recorded since its creation at %s.",
			last.UTC().Format(time.RFC3339))
	}
	late := limit > 0 && now.Sub(last) > limit
	return alarms.Condition{Cause: "backup", Bad: late, Good: !late, Title: "the last backup is old",
		Text: text + " Look at the program that should make backups. If it is not `postrider backup`, it must run " +
			"`postrider backup --done-elsewhere` afterwards. If you want no such alarm, set alert_backup_age to 0s."}
}
