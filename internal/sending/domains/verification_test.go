package domains

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/resolve"
)

var t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestNext(t *testing.T) {
	since := func(d time.Duration) int64 { return t0.Add(-d).UnixMicro() }
	for _, c := range []struct {
		name    string
		before  check
		found   finding
		waiting time.Duration // time since verification was requested
		want    check
	}{
		{"found at once", check{}, present, 0, check{Status: Verified}},
		{"found later", check{Status: Pending}, present, time.Hour, check{Status: Verified}},
		{"found after it failed", check{Status: Failed}, present, 100 * time.Hour, check{Status: Verified}},
		{"not yet there", check{}, absent, 0, check{Status: Pending, Since: t0.UnixMicro()}},
		{"looked for long after the others", check{}, absent, 100 * time.Hour, check{Status: Pending, Since: t0.UnixMicro()}},
		{"still not there, long after the others", check{Status: Pending, Since: since(71 * time.Hour)}, absent,
			200 * time.Hour, check{Status: Pending, Since: since(71 * time.Hour)}},
		{"not there for three days of its own", check{Status: Pending, Since: since(73 * time.Hour)}, absent, 200 * time.Hour,
			check{Status: Failed}},
		{"still not there", check{Status: Pending}, absent, 71 * time.Hour,
			check{Status: Pending, Since: since(71 * time.Hour)}},
		{"not there for just three days", check{Status: Pending}, absent, 72 * time.Hour,
			check{Status: Pending, Since: since(72 * time.Hour)}},
		{"not there for three days", check{Status: Pending}, absent, 73 * time.Hour, check{Status: Failed}},
		{"failed stays failed", check{Status: Failed}, absent, 80 * time.Hour, check{Status: Failed}},
		{"no answer at first", check{}, unknown, 0, check{Status: Pending, Since: t0.UnixMicro()}},
		{"no answer while pending, even after three days", check{Status: Pending}, unknown, 80 * time.Hour,
			check{Status: Pending}},
		{"no answer while verified", check{Status: Verified}, unknown, 0, check{Status: Verified}},
		{"disappears", check{Status: Verified}, absent, 0, check{Status: TemporaryFailure, Since: t0.UnixMicro()}},
		{"is missing for a day", check{Status: TemporaryFailure, Since: since(24 * time.Hour)}, absent, 0,
			check{Status: TemporaryFailure, Since: since(24 * time.Hour)}},
		{"is missing for three days", check{Status: TemporaryFailure, Since: since(73 * time.Hour)}, absent, 0,
			check{Status: Failed}},
		{"comes back", check{Status: TemporaryFailure, Since: since(24 * time.Hour)}, present, 0, check{Status: Verified}},
		{"no answer while missing", check{Status: TemporaryFailure, Since: since(80 * time.Hour)}, unknown, 0,
			check{Status: TemporaryFailure, Since: since(80 * time.Hour)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, next(c.before, c.found, t0.Add(-c.waiting), t0)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestOverall(t *testing.T) {
	all := func(s Status) map[string]check {
		return map[string]check{"mx": {Status: s}, "spf": {Status: s}, "dkim": {Status: s}}
	}
	with := func(m map[string]check, key string, s Status) map[string]check {
		m[key] = check{Status: s}
		return m
	}
	for _, c := range []struct {
		name               string
		sending, receiving bool
		checks             map[string]check
		want               Status
		maySend            bool
	}{
		{"new", true, false, nil, NotStarted, false},
		{"looked for", true, false, all(Pending), Pending, false},
		{"one record is there", true, false, with(all(Pending), "mx", Verified), Pending, false},
		{"all are there", true, false, all(Verified), Verified, true},
		{"Ed25519 is not needed", true, false, with(all(Verified), "dkim-ed25519", Failed), Verified, true},
		{"tracking is not needed", true, false, with(all(Verified), "tracking", Pending), Verified, true},
		{"one has gone missing", true, false, with(all(Verified), "dkim", TemporaryFailure), Verified, true},
		{"one has failed", true, false, with(all(Verified), "dkim", Failed), Failed, false},
		{"sending is there and receiving is not", true, true, with(all(Verified), "receiving", Pending), PartiallyVerified,
			true},
		{"receiving was just enabled", true, true, all(Verified), PartiallyVerified, true},
		{"receiving failed", true, true, with(all(Verified), "receiving", Failed), PartiallyFailed, true},
		{"receiving without the proof", true, true, with(with(all(Verified), "dkim", Pending), "receiving", Verified),
			Pending, false},
		{"only receiving", false, true, map[string]check{"receiving": {Status: Verified}, "dkim": {Status: Verified}},
			Verified, false},
		{"only receiving, without the proof", false, true, map[string]check{"receiving": {Status: Verified}}, Pending, false},
		{"only receiving, and the proof has failed", false, true, map[string]check{"receiving": {Status: Verified},
			"dkim": {Status: Failed}},
			Failed, false},
		{"received before the proof was asked for", false, true, map[string]check{"receiving": {Status: Verified},
			"dkim":   {Status: Failed},
			unproved: {Status: TemporaryFailure}}, Verified, false},
		{"which is no reason to send", true, true, with(with(with(all(Verified), "dkim", Pending), "receiving", Verified),
			unproved, TemporaryFailure),
			PartiallyVerified, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Domain{Sending: c.sending, Receiving: c.receiving, checks: c.checks}
			if got := d.overall(); got != c.want || d.MaySend() != c.maySend {
				t.Errorf("%s, may send %v; want %s, %v", got, d.MaySend(), c.want, c.maySend)
			}
		})
	}
}

// A domain that received mail before the proof was required keeps receiving mail for 72 hours after its first look-up.
// This holds even if DNS does not answer.
func TestExcuse(t *testing.T) {
	d := Domain{Receiving: true, VerifySince: t0.Add(-90 * 24 * time.Hour),
		checks: map[string]check{"receiving": {Status: Verified}, unproved: {Status: TemporaryFailure}}}
	for _, f := range []finding{absent, unknown} {
		found := map[string]finding{"receiving": present, "dkim": f}
		first := judge(d, found, t0)
		last := judge(judge(first, found, t0.Add(71*time.Hour)), map[string]finding{"receiving": unknown},
			t0.Add(100*time.Hour))
		if !d.MayReceive() || !first.MayReceive() || !last.MayReceive() {
			t.Errorf("stops at once: %v, %v, %v", d.checks, first.checks, last.checks)
		}
		if over := judge(last, found, t0.Add(73*time.Hour)); over.MayReceive() {
			t.Errorf("goes on: %+v", over.checks)
		}
		proved := judge(first, map[string]finding{"receiving": present, "dkim": present}, t0.Add(time.Hour))
		if lost := judge(proved, map[string]finding{"dkim": absent}, t0.Add(2*time.Hour)); !proved.MayReceive() ||
			!lost.MayReceive() ||
			lost.checks["dkim"].Status != TemporaryFailure || len(lost.checks) != 2 {
			t.Errorf("proved: %+v, and then lost: %+v", proved.checks, lost.checks)
		}
	}
}

func TestRestartLooksOnlyForWhatIsMissing(t *testing.T) {
	d := Domain{Sending: true, checks: map[string]check{"mx": {Status: Verified}, "spf": {Status: Failed}}}
	after := restart(d, []Record{{Key: "mx"}, {Key: "spf"}, {Key: "dkim"}}, t0)
	want := map[string]check{"mx": {Status: Verified}, "spf": {Status: Pending, Since: t0.UnixMicro()},
		"dkim": {Status: Pending, Since: t0.UnixMicro()}}
	if d := cmp.Diff(want, after.checks); d != "" {
		t.Error(d)
	}
	if after.Status != Pending || !after.VerifySince.Equal(t0) || d.checks["spf"].Status != Failed {
		t.Errorf("%+v (and before: %+v)", after, d)
	}
}

func TestHasMX(t *testing.T) {
	mx := []resolve.MX{{Host: "mx.ours.example", Pref: 10}, {Host: "mx.theirs.example", Pref: 20}}
	if !hasMX(mx, "MX.ours.example", true) || hasMX(mx, "mx.theirs.example", true) ||
		!hasMX(mx, "mx.theirs.example", false) || hasMX(nil, "x", false) {
		t.Error("hasMX")
	}
}

func TestRecordSets(t *testing.T) {
	c := Config{Default: Region{"bounce.host.example", "in.host.example", "spf.host.example", "track.host.example"},
		Regions:  map[string]Region{"eu-west-1": {BounceHost: "bounce.eu.example"}},
		Selector: "postrider", SelectorEd25519: "postrider-ed", CAAIssuer: "letsencrypt.org"}
	shape := func(d Domain) (all []string) {
		for _, r := range c.Records(&d) {
			all = append(all, r.Kind+" "+r.Type+" "+r.Name+" "+r.FQDN+" "+r.Value)
		}
		return all
	}
	d := Domain{Name: "example.com", ReturnPath: "send", Region: "us-east-1", Sending: true, rsa: keyRow{record: "rsa"},
		ed25519: keyRow{record: "ed"}}
	want := []string{
		"SPF MX send send.example.com bounce.host.example",
		"SPF TXT send send.example.com v=spf1 include:spf.host.example ~all",
		"DKIM TXT postrider._domainkey postrider._domainkey.example.com rsa",
		"DKIM TXT postrider-ed._domainkey postrider-ed._domainkey.example.com ed",
	}
	if d := cmp.Diff(want, shape(d)); d != "" {
		t.Error("apex:", d)
	}
	d.Sending, d.Receiving = false, true
	want = []string{
		"DKIM TXT postrider._domainkey postrider._domainkey.example.com rsa",
		"Receiving MX example.com example.com in.host.example",
	}
	if d := cmp.Diff(want, shape(d)); d != "" {
		t.Error("only receiving:", d)
	}
	d.Sending = true
	d.Name, d.ReturnPath, d.Region, d.Receiving, d.TrackingSubdomain = "mail.example.co.uk", "bounce", "eu-west-1", true,
		"links"
	d.checks = map[string]check{"caa": {Status: Pending}}
	want = []string{
		"SPF MX bounce.mail bounce.mail.example.co.uk bounce.eu.example",
		"SPF TXT bounce.mail bounce.mail.example.co.uk v=spf1 include:spf.host.example ~all",
		"DKIM TXT postrider._domainkey.mail postrider._domainkey.mail.example.co.uk rsa",
		"DKIM TXT postrider-ed._domainkey.mail postrider-ed._domainkey.mail.example.co.uk ed",
		"Receiving MX mail mail.example.co.uk in.host.example",
		"Tracking CNAME links.mail.example.co.uk links.mail.example.co.uk track.host.example",
		`TrackingCAA CAA example.co.uk example.co.uk 0 issue "letsencrypt.org"`,
	}
	if d := cmp.Diff(want, shape(d)); d != "" {
		t.Error("below:", d)
	}
}

func TestCheckName(t *testing.T) {
	c := Config{SandboxDomains: []string{"resend.dev"}}
	for in, want := range map[string]string{"Example.com": "example.com", "münchen.example": "xn--mnchen-3ya.example",
		" mail.a.co.uk. ": "mail.a.co.uk",
		"me.github.io":    "me.github.io"} {
		if got, err := c.checkName(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "com", "co.uk", "github.io", "localhost", "gmail.com", "resend.dev", "no dots",
		"-a.com", "a..com",
		"a_b.com", "http://a.com", "a.com/x", "a@b.com", "1.2.3.4.5..", "a\r\n.com"} {
		if got, err := c.checkName(in); err == nil {
			t.Errorf("%q is accepted as %q", in, got)
		}
	}
}

func TestJudgeClaim(t *testing.T) {
	day := 24 * time.Hour
	base := Claim{Status: ClaimPending, CreatedAt: t0.Add(-2 * time.Hour), ExpiresAt: t0.Add(5 * day)}
	proven := func(ago, warned, reminded time.Duration) func(*Claim) {
		return func(c *Claim) {
			c.ProvenAt = t0.Add(-ago)
			for _, x := range []struct {
				at  *time.Time
				ago time.Duration
			}{{&c.WarnedAt, warned}, {&c.RemindedAt, reminded}} {
				if x.ago > 0 {
					*x.at = t0.Add(-x.ago)
				}
			}
		}
	}
	expired := func(c *Claim) { c.ExpiresAt = t0 }
	both := func(all ...func(*Claim)) func(*Claim) {
		return func(c *Claim) {
			for _, f := range all {
				f(c)
			}
		}
	}
	none, inUse := ownerUsage{}, ownerUsage{inUse: true}
	for _, c := range []struct {
		name   string
		claim  func(*Claim)
		proof  finding
		owner  ownerUsage
		want   ClaimStatus
		reason string
		again  time.Duration
	}{
		{"no proof", nil, absent, inUse, ClaimPending, "", 15 * time.Minute},
		{"no proof for just an hour", func(c *Claim) { c.CreatedAt, c.askedAt = t0.Add(-time.Hour), t0.Add(-time.Hour) },
			absent, inUse,
			ClaimPending, "", 15 * time.Minute},
		{"no proof at first", func(c *Claim) { c.CreatedAt = t0 }, absent, inUse, ClaimPending, "", 30 * time.Second},
		{"no answer", nil, unknown, none, ClaimPending, "", 15 * time.Minute},
		{"too late", expired, present, none, ClaimExpired, "", 0},
		{"too late, and no answer", expired, unknown, none, ClaimExpired, "", 0},
		{"the proof is there", nil, present, inUse, ClaimVerified, "", time.Second},
		{"proven in time", both(expired, proven(time.Second, 0, 0)), present, none, ClaimCompleted, "", 0},
		{"proven in time, and no answer now", both(expired, proven(time.Second, 0, 0)), unknown, none, ClaimPending, "",
			15 * time.Minute},
		{"proven in time, and the proof is gone", both(expired, proven(time.Second, 0, 0)), absent, none, ClaimExpired, "",
			0},
		{"the owner's domain is not in use", proven(time.Second, 0, 0), present, ownerUsage{scheduled: true, active: true},
			ClaimCompleted, "", 0},
		{"the owner is given time", proven(time.Second, 0, 0), present, inUse, ClaimBlocked, "grace_period",
			10 * time.Minute},
		{"the owner's time runs", proven(day, day, 0), present, inUse, ClaimBlocked, "grace_period", 10 * time.Minute},
		{"the proof goes while it runs", proven(day, day, 0), absent, inUse, ClaimPending, "", 15 * time.Minute},
		{"the owner was not reminded", proven(5*day, 5*day, 0), present, inUse, ClaimBlocked, "grace_period",
			10 * time.Minute},
		{"a day has not passed since", proven(5*day, 5*day, 23*time.Hour), present, inUse, ClaimBlocked, "grace_period",
			10 * time.Minute},
		{"the owner's time is over", proven(3*day, 3*day, day), present, inUse, ClaimCompleted, "", 0},
		{"mail waits", proven(3*day, 3*day, day), present, ownerUsage{inUse: true, scheduled: true}, ClaimBlocked,
			"pending_scheduled_emails",
			10 * time.Minute},
		{"the owner goes on sending", proven(3*day, 3*day, day), present, ownerUsage{inUse: true, active: true}, ClaimBlocked,
			"recent_owner_activity", 10 * time.Minute},
		{"for just 30 days", both(expired, proven(30*day, 30*day, 28*day)), present, ownerUsage{inUse: true, active: true},
			ClaimBlocked,
			"recent_owner_activity", 10 * time.Minute},
		{"for 30 days", both(expired, proven(30*day+1, 30*day, 28*day)), present,
			ownerUsage{inUse: true, active: true}, ClaimFailed, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim := base
			if c.claim != nil {
				c.claim(&claim)
			}
			got, again := judgeClaim(claim, c.proof, c.owner, t0)
			if got.Status != c.want || got.BlockedReason != c.reason || again != c.again ||
				(got.FailureReason != "") != (c.want == ClaimFailed) {
				t.Errorf("%s %q %q, again in %v", got.Status, got.BlockedReason, got.FailureReason, again)
			}
		})
	}
	for _, reason := range []string{blockedActivity, blockedScheduled, ""} {
		for _, other := range []string{blockedActivity, blockedScheduled, ""} {
			if (failure(reason) == failure(other)) != (reason == other) {
				t.Errorf("what is said of %q and %q is not told apart", reason, other)
			}
		}
	}
}

// The owner is reminded a day before the three-day grace period ends.
func TestOwnersAreReminded(t *testing.T) {
	for warned, want := range map[time.Duration]bool{48*time.Hour - time.Microsecond: false, 48 * time.Hour: true,
		90 * time.Hour: true} {
		c := Claim{Status: ClaimBlocked, ProvenAt: t0.Add(-warned), WarnedAt: t0.Add(-warned), ExpiresAt: t0.Add(time.Hour)}
		if got, _ := judgeClaim(c, present, ownerUsage{inUse: true}, t0); got.RemindedAt.Equal(t0) != want {
			t.Errorf("told of the proof %v ago, reminded at %v", warned, got.RemindedAt)
		}
	}
}

// A look-up that gets no answer does not change a blocked claim.
func TestNoAnswerLeavesAClaimBlocked(t *testing.T) {
	c := Claim{Status: ClaimBlocked, BlockedReason: blockedActivity, ProvenAt: t0.Add(-time.Hour),
		WarnedAt: t0.Add(-time.Hour), ExpiresAt: t0}
	if got, _ := judgeClaim(c, unknown, ownerUsage{}, t0); !cmp.Equal(c, got, cmp.AllowUnexported(Claim{})) {
		t.Errorf("%+v", got)
	}
}

func TestClaimIsProvenByItsValue(t *testing.T) {
	c := Claim{Token: "00ff"}
	for _, x := range []struct {
		text              string
		current, tolerant bool // whether the record counts without and with LegacyAliases
	}{
		{"postrider-domain-verification=00ff", true, true},
		{`"postrider-domain-verification=00ff"`, true, true},
		{"resend-domain-verification=00ff", false, true},
		{"other-domain-verification=00ff", false, false},
		{"postrider-domain-verification=00fe", false, false},
		{"00ff", false, false},
	} {
		texts := []string{"v=spf1 -all", x.text}
		if c.provenBy(texts, false) != x.current || c.provenBy(texts, true) != x.tolerant {
			t.Errorf("%s: %v, with the older prefix %v", x.text, c.provenBy(texts, false), c.provenBy(texts, true))
		}
	}
}

// If a domain's host changes during a look-up, findings for the former host are not applied to the new host.
func TestFindingsOfOtherRecordsDoNotCount(t *testing.T) {
	asked := []Record{{Key: "mx", FQDN: "send.acme.example"}, {Key: "tracking", FQDN: "links.acme.example"},
		{Key: "receiving", FQDN: "acme.example"}}
	now := []Record{{Key: "mx", FQDN: "send.acme.example"}, {Key: "tracking", FQDN: "go.acme.example"}}
	got := sameRecords(map[string]finding{"mx": present, "tracking": present, "receiving": absent, "caa": absent}, asked,
		now)
	if d := cmp.Diff(map[string]finding{"mx": present, "caa": absent}, got); d != "" {
		t.Error(d)
	}
}

// judge deletes the check for a record that is no longer needed and keeps all other checks.
func TestJudgeTakesAllFindings(t *testing.T) {
	for range 20 { // repeated, because map iteration order is random
		d := judge(Domain{Sending: true, checks: map[string]check{"caa": {Status: Pending}}},
			map[string]finding{"caa": needless, "mx": present, "spf": present, "dkim": present, "tracking": present}, t0)
		if _, caa := d.checks["caa"]; caa || len(d.checks) != 4 || d.Status != Verified || !d.CheckedAt.Equal(t0) {
			t.Fatalf("%s with %v", d.Status, d.checks)
		}
	}
}

// The CAA record is listed as long as other CAA records at the registrable domain make it necessary. When the CAA
// record is no longer necessary, its check is deleted.
func TestCAAIsNeededForATime(t *testing.T) {
	c := &Config{CAAIssuer: "letsencrypt.org"}
	d := Domain{Name: "acme.example", Sending: true, TrackingSubdomain: "links", checks: map[string]check{}}
	look := func(dns resolve.Fake) {
		found := map[string]finding{}
		if f, _, counts := lookUpCAA(t.Context(), c, dns, &d); counts {
			found["caa"] = f
		}
		d = judge(d, found, t0)
	}
	other := resolve.Fake{CAARecords: map[string][]resolve.CAA{"acme.example": {{Tag: "issue", Value: "other.example"}}}}
	fails := resolve.Fake{Fail: []string{"acme.example"}}
	for _, step := range []struct {
		name string
		dns  resolve.Fake
		want Status
	}{
		{"no answer", fails, ""},
		{"nothing is there", resolve.Fake{}, ""},
		{"another issuer is there", other, Pending},
		{"no answer then", fails, Pending},
		{"nothing is there any more", resolve.Fake{}, ""},
	} {
		if look(step.dns); d.checks["caa"].Status != step.want || d.hasPending() != (step.want == Pending) {
			t.Errorf("%s: %+v", step.name, d.checks)
		}
	}
}
