package domains

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/dnstext"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// RotateKind is the job kind for the steps of key rotations.
const RotateKind = "domains.rotate"

const (
	rotationBatch = 500
	// stalledAfter is how long after its last step a rotation is taken up again. Steps are at most maxInterval apart.
	stalledAfter = 2 * maxInterval
)

// ServerAnswer is what one authoritative server answers about the TXT records at a name.
type ServerAnswer struct {
	Server string
	Texts  []string      // nil if the name has no TXT records
	TTL    time.Duration // how long resolvers keep the answer; 0 if it is unknown
	Err    error         // why the server gave no usable answer; nil if it gave one
}

func (a ServerAnswer) has() bool { return a.Err == nil && len(a.Texts) > 0 }

// recordName returns the name of the DKIM record with a selector.
func recordName(selector string, d *Domain) string { return selector + "._domainkey." + d.Name }

// SetRetrySpan replaces Config.RetrySpan.
func (s *Service) SetRetrySpan(span time.Duration) { s.c.liveSpan.Store(int64(span)) }

// RotateKeys begins a rotation of the domain's DKIM keys, and returns the keys of the domain.
//
// In an emergency, others may know the private keys. The new keys then sign as soon as their records are seen, and the
// records of the old ones are revoked after all waiting emails are signed again, which happens at each attempt to
// deliver them. Keys that wait from an ordinary rotation are replaced. RotateKeys returns a fault if a rotation is
// under way, unless this one is the first emergency of it, or if an emergency rotation has just replaced the keys.
func (s *Service) RotateKeys(ctx context.Context, teamID, domainID string, emergency bool) ([]Key, error) {
	d, err := getDomain(ctx, s.DB.Reader, teamID, domainID)
	if err != nil {
		return nil, err
	}
	keys, err := keysOf(ctx, s.DB.Reader, teamID, domainID)
	if err != nil {
		return nil, err
	}
	if err := s.mayRotate(&d, keys, emergency, s.DB.Now()); err != nil {
		return nil, err
	}
	made, err := s.makeKeys(&d, keys, emergency)
	if err != nil {
		return nil, err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if d, err = domainToChange(ctx, tx, teamID, domainID); err != nil {
			return err
		}
		if keys, err = keysOf(ctx, tx.Reader, teamID, domainID); err != nil {
			return err
		}
		if err := s.mayRotate(&d, keys, emergency, tx.Now()); err != nil {
			return err
		}
		audit.Target(ctx, d.ID)
		keys, err = s.beginRotation(ctx, tx, &d, keys, made, emergency)
		if err != nil {
			return err
		}
		audit.Detail(ctx, s.describeRotation(&d, keys, made, emergency))
		return s.stepAt(ctx, tx, d.TeamID, d.ID, tx.Now())
	})
	if err != nil {
		return nil, err
	}
	return s.describeKeys(&d, keys, s.DB.Now()), nil
}

// describeRotation describes for the audit log a rotation that has begun: its kind, and the selectors of the keys that
// sign and of those that were made.
func (s *Service) describeRotation(d *Domain, keys, made []key, emergency bool) string {
	rsa, ed25519 := s.c.signing(d)
	signing, next := []string{rsa}, []string{}
	if d.Sending && !d.unpublished(algorithmEd25519) {
		signing = append(signing, ed25519)
	}
	for i := range keys {
		ours := slices.ContainsFunc(made, func(m key) bool { return m.id == keys[i].id })
		if ours && !d.unpublished(keys[i].algorithm) {
			next = append(next, keys[i].selector)
		}
	}
	kind := "ordinary"
	if emergency {
		kind = "emergency"
	}
	return fmt.Sprintf("%s; signing: %s; next: %s", kind, strings.Join(signing, ", "), strings.Join(next, ", "))
}

// mayRotate returns a fault if no rotation of the domain's keys can begin.
func (s *Service) mayRotate(d *Domain, keys []key, emergency bool, now time.Time) error {
	if d.TeamID == system || d.Placeholder || !d.proved() {
		return fault.Invalidf("", "The domain %s is not verified, so its DKIM keys have signed nothing. Verify it first.",
			d.Name)
	}
	if !d.publishesNext() {
		return fault.Invalidf("", "The domain %s does not send, so its second CNAME record for DKIM is not required, and a "+
			"new key could not be seen. Enable its `sending` capability first.", d.Name)
	}
	if emergency {
		if err := s.c.mayRepeat(d, keys, now); err != nil {
			return err
		}
	} else if k := nextKey(keys, algorithmRSA); k != nil {
		when := "after its record has been seen for twice its TTL"
		if k.emergency && k.reused {
			when = "after its record has been seen for its TTL, because this is an emergency rotation"
		} else if k.emergency {
			when = "as soon as its record is seen, because this is an emergency rotation"
		}
		return fault.New(fault.Locked, "", "The DKIM keys of %s are being rotated already. The new key has the selector %s "+
			"and signs %s. The keys of the domain show the record.", d.Name, k.selector, when)
	}
	if s.c.selector(d, keys, emergency) == "" {
		return fault.New(fault.Locked, "", "The record of the former DKIM key of %s must stay published for mail that is "+
			"still under way, and a domain that is set up with CNAME records has only two selectors. Try again after a "+
			"week, or begin an emergency rotation.", d.Name)
	}
	kept := slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return emergency && k.state == KeyRevoked })
	if len(kept) >= keysMax {
		wait := "30 days"
		if emergency { // it replaces revoked keys, and retired keys are revoked soon
			wait = "an hour"
		}
		return fault.New(fault.Locked, "", "The domain %s has %d former DKIM keys, whose records must stay in the DNS. Try "+
			"again after %s.", d.Name, len(kept), wait)
	}
	return nil
}

// makeKeys generates the keys of a new rotation, without selectors.
func (s *Service) makeKeys(d *Domain, keys []key, emergency bool) (made []key, err error) {
	for _, algorithm := range d.algorithms(keys, emergency) {
		k := key{id: id.New(), algorithm: algorithm}
		row, err := s.newKey(algorithm, k.id)
		if err != nil {
			return nil, err
		}
		k.sealed, k.record = row.sealed, row.record
		made = append(made, k)
	}
	return made, nil
}

// beginRotation stores the keys of a new rotation, and returns all keys of the domain that do not sign.
func (s *Service) beginRotation(ctx context.Context, tx *db.Tx, d *Domain, keys, made []key, emergency bool) ([]key,
	error) {
	// An Ed25519 key may have been made for a domain that meanwhile has one.
	made = slices.DeleteFunc(slices.Clone(made), func(k key) bool {
		return !slices.Contains(d.algorithms(keys, emergency), k.algorithm)
	})
	added, kept, replaced := s.c.begin(d, keys, made, emergency, tx.Now())
	for i := range replaced {
		deleteKey(ctx, tx, &replaced[i])
	}
	for i := range kept {
		saveKey(ctx, tx, &kept[i])
	}
	for i := range added {
		insertKey(ctx, tx, &added[i])
	}
	s.invalidate(tx, d.ID)
	if err := s.askForRecords(ctx, tx, d, added); err != nil {
		return nil, err
	}
	return append(kept, added...), s.Recorder.Record(ctx, tx, events.Event{TeamID: d.TeamID, Type: events.DomainUpdated,
		DomainID: d.ID, Data: *d})
}

// askForRecords enqueues a notice about the records of new keys, if the owner of the domain has to add them.
func (s *Service) askForRecords(ctx context.Context, tx *db.Tx, d *Domain, added []key) error {
	if d.keySetup() != SetupRecords || len(added) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The DKIM keys of %s are being replaced. Add at your DNS provider:\n", d.Name)
	listRecords(&b, d, added)
	b.WriteString("\nKeep the records of the keys in use. Emails are signed with them until some time after the new records " +
		"are found. The page of the domain shows the state of all keys.\n")
	subject := "New DKIM records for " + d.Name
	if added[0].emergency {
		subject = "Add new DKIM records for " + d.Name + " now"
		b.WriteString("\nThis rotation is an emergency: somebody else may have the keys in use. Until the new records are " +
			"found, others may be able to sign emails as your domain.\n")
	}
	return s.Notify(ctx, tx, d.TeamID, subject, b.String())
}

func listRecords(b *strings.Builder, d *Domain, keys []key) {
	for _, k := range keys {
		fmt.Fprintf(b, "\n  Type: TXT\n  Name: %s._domainkey.%s\n  Value: %s\n", k.selector, d.Name, k.record)
	}
}

// remind enqueues a notice about the records of next keys that were not found for a week. The times of the steps before
// and after decide, so that an owner gets one notice for each rotation.
func (s *Service) remind(ctx context.Context, tx *db.Tx, d *Domain, before, after []key, now time.Time) error {
	var missing []key
	for i := range after {
		k := &after[i]
		was := slices.IndexFunc(before, func(b key) bool { return b.id == k.id })
		if was >= 0 && !before[was].overdue(before[was].steppedAt) && k.overdue(now) && d.PublishesKeys() {
			missing = append(missing, *k)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The DKIM keys of %s cannot be replaced, because records of the new keys were not found for a week. Add at "+
		"your DNS provider:\n", d.Name)
	listRecords(&b, d, missing)
	b.WriteString("\nEmails are signed with the keys in use until then, so keep their records. The page of the domain shows the " +
		"state of all keys. You get no other reminder.\n")
	return s.Notify(ctx, tx, d.TeamID, "DKIM records are still missing for "+d.Name, b.String())
}

// stepAt makes the next step of a domain's rotation due at the given time.
func (s *Service) stepAt(ctx context.Context, tx *db.Tx, teamID, domainID string, at time.Time) error {
	moved, err := s.Queue.Move(ctx, tx, RotateKind, teamID, teamID, rotationJob(teamID, domainID).Dedupe, at)
	if err == nil && !moved {
		s.Queue.Insert(ctx, tx, rotationJob(teamID, domainID))
	}
	return err
}

// rotationJob returns the job for the steps of a domain's rotation, due now.
func rotationJob(teamID, domainID string) jobs.New {
	return jobs.New{Kind: RotateKind, Lane: teamID, TeamID: teamID, Dedupe: "keys " + domainID, Payload: domainID}
}

// RotationKind returns the job kind for the steps of key rotations. After internal errors, steps are retried without
// limit.
func (s *Service) RotationKind() jobs.Kind {
	k := s.Kind()
	k.Name, k.Handle, k.Workers, k.PerLane = RotateKind, s.rotate, 16, 4
	return k
}

// ExamineKeys enqueues a step for each domain whose keys may be old enough for a rotation, and for rotations whose steps
// have stopped because the clock was changed. The caller runs ExamineKeys periodically.
func (s *Service) ExamineKeys(ctx context.Context) error {
	now := s.DB.Now()
	due, err := rotationsDue(ctx, s.DB.Reader, now, now.Add(examineSeldom+time.Hour), rotationBatch)
	if err != nil {
		return fmt.Errorf("find domains whose DKIM keys may be old: %w", err)
	}
	stalled, err := rotationsStalled(ctx, s.DB.Reader, now.Add(-stalledAfter), now.Add(time.Minute), rotationBatch)
	if err != nil {
		return fmt.Errorf("find rotations of DKIM keys that have stopped: %w", err)
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		for _, d := range append(due, stalled...) {
			if err := s.stepAt(ctx, tx, d.teamID, d.id, tx.Now()); err != nil {
				return err
			}
		}
		return nil
	})
}

// rotate handles the job that makes the steps of a domain's rotation: it looks up the records of the next keys, changes
// the states of all keys, and begins a rotation if one is due. The job is repeated as long as the domain has keys that
// do not sign.
func (s *Service) rotate(ctx context.Context, j jobs.Job) error {
	d, err := getDomain(ctx, s.DB.Reader, j.TeamID, j.Payload)
	if fault.KindOf(err) == fault.NotFound {
		return s.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	keys, err := keysOf(ctx, s.DB.Reader, j.TeamID, j.Payload)
	if err != nil {
		return err
	}
	seen, err := s.lookUpKeys(ctx, &d, keys)
	if err != nil {
		return err
	}
	var made []key
	if s.c.rotationDue(&d, keys, s.DB.Now()) {
		if made, err = s.makeKeys(&d, keys, false); err != nil {
			return err
		}
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		// The domain may have changed during the look-ups, so the results are applied to the current rows.
		d, err := domainToChange(ctx, tx, j.TeamID, j.Payload)
		if fault.KindOf(err) == fault.NotFound {
			s.Queue.Finish(ctx, tx, j)
			return nil
		}
		if err != nil {
			return err
		}
		keys, err := keysOf(ctx, tx.Reader, j.TeamID, j.Payload)
		if err != nil {
			return err
		}
		if keys, err = s.apply(ctx, tx, &d, keys, seen); err != nil {
			return err
		}
		if len(made) > 0 && s.c.rotationDue(&d, keys, tx.Now()) {
			if keys, err = s.beginRotation(ctx, tx, &d, keys, made, false); err != nil {
				return err
			}
		}
		if now := tx.Now(); d.rotateAt.Before(now) || d.rotateAt.After(now.Add(examineSeldom)) {
			saveExamination(ctx, tx, &d, s.c.examineAt(&d, now))
		}
		if len(keys) == 0 {
			s.Queue.Finish(ctx, tx, j)
			return nil
		}
		wait := maxInterval
		for i := range keys {
			wait = min(wait, s.c.nextStep(&keys[i], tx.Now()))
		}
		s.Queue.Retry(ctx, tx, j, tx.Now().Add(wait), "")
		return nil
	})
}

// apply stores the result of a step, and returns all keys of the domain that do not sign then.
func (s *Service) apply(ctx context.Context, tx *db.Tx, d *Domain, keys []key, seen map[string]sighting) ([]key, error) {
	now := tx.Now()
	o := s.c.step(d, keys, seen, now)
	if err := s.remind(ctx, tx, d, keys, o.keys, now); err != nil {
		return nil, err
	}
	changed := len(o.deleted) > 0
	for i := range o.deleted {
		deleteKey(ctx, tx, &o.deleted[i])
	}
	for i := range o.keys {
		saveKey(ctx, tx, &o.keys[i])
		changed = changed || o.keys[i].stateAt.Equal(now)
	}
	for i := range o.sign {
		deleteKey(ctx, tx, &o.sign[i])
		if d.unpublished(o.sign[i].algorithm) {
			s.lookUpAgain(ctx, tx, d, "dkim-ed25519")
		}
		old, err := s.signWith(d, &o.sign[i], now)
		if err != nil {
			return nil, err
		}
		saveSigningKey(ctx, tx, d, old.algorithm)
		if s, asked := seen[recordName(old.selector, d)]; asked && s.finding == absent {
			continue // No signature of the former key can be verified, so it needs no record.
		}
		kept, replaced := retire(o.keys, old)
		for i := range replaced {
			deleteKey(ctx, tx, &replaced[i])
		}
		insertKey(ctx, tx, &old)
		o.keys = kept
	}
	if changed || len(o.sign) > 0 {
		s.invalidate(tx, d.ID)
	}
	if len(o.sign) == 0 {
		return o.keys, nil
	}
	// The states of the domain's records still tell what was found at the former selectors.
	if err := s.checkNow(ctx, tx, d); err != nil {
		return nil, err
	}
	return o.keys, s.Recorder.Record(ctx, tx, events.Event{TeamID: d.TeamID, Type: events.DomainUpdated, DomainID: d.ID,
		Data: *d})
}

// lookUpAgain forgets what was found of a record, if the former set-up of the domain has it.
func (s *Service) lookUpAgain(ctx context.Context, tx *db.Tx, d *Domain, recordKey string) {
	for _, r := range s.c.recordsInUse(d) {
		if r.Key == recordKey {
			d.checks = maps.Clone(d.checks)
			delete(d.checks, recordKey)
			*d = restart(*d, []Record{r}, tx.Now())
			saveDomain(ctx, tx, d)
		}
	}
}

// signWith makes a next key the one that signs, and returns the key that has signed before.
func (s *Service) signWith(d *Domain, k *key, now time.Time) (old key, err error) {
	der, err := s.Keys.Open(sealPurpose, k.sealed, []byte(k.id))
	if err != nil {
		return old, fmt.Errorf("open the next DKIM key of %s (was the secret key changed?): %w", d.Name, err)
	}
	sealed, err := s.Keys.Seal(sealPurpose, der, []byte(d.ID))
	if err != nil {
		return old, fmt.Errorf("seal a DKIM key: %w", err)
	}
	rsa, ed25519 := s.c.signing(d)
	row, selector := &d.rsa, rsa
	if k.algorithm == algorithmEd25519 {
		row, selector = &d.ed25519, ed25519
	}
	old = key{id: id.New(), domainID: d.ID, teamID: d.TeamID, selector: selector, algorithm: k.algorithm,
		state: KeyRetired, record: row.record, emergency: k.emergency, createdAt: now, stateAt: now, steppedAt: now,
		ttl: k.ttl}
	if *row = (keyRow{sealed, k.record, k.selector}); k.algorithm == algorithmRSA {
		d.keysSince = now
	}
	return old, nil
}

// lookUpKeys looks up the records of the next keys at the authoritative servers, or with the resolver if the service
// has no function for that. The result is by the id of the key. If our own DNS servers fail, lookUpKeys returns an error.
//
// The record of a next key that the set-up does not publish is not looked up. lookUpKeys looks up the record of the key
// that it replaces instead. This result is by the name of the record: absent if the DNS does not have it any more.
func (s *Service) lookUpKeys(ctx context.Context, d *Domain, keys []key) (map[string]sighting, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpMax)
	defer cancel()
	seen := map[string]sighting{}
	for _, k := range keys {
		if k.state != KeyNext {
			continue
		}
		replaced := d.unpublished(k.algorithm)
		if replaced {
			_, ed25519 := s.c.signing(d)
			k = key{id: recordName(ed25519, d), selector: ed25519, record: d.ed25519.record}
		}
		if s.c.TrustDomains && s.Authoritative == nil {
			seen[k.id] = sighting{present, time.Second}
			if replaced {
				seen[k.id] = sighting{finding: absent} // This record is none of the domain's, which count as found.
			}
			continue
		}
		all, err := s.answersAbout(ctx, recordName(k.selector, d))
		if fault.IsOutage(err) {
			return nil, fmt.Errorf("look up the next DKIM key of %s: %w", d.Name, err)
		}
		if seen[k.id] = judgeAnswers(all, err, k.record); replaced && slices.ContainsFunc(all, ServerAnswer.has) {
			seen[k.id] = sighting{finding: present} // One server is enough for verifiers.
		}
	}
	return seen, nil
}

// answersAbout returns the answers of all authoritative servers, or else that of the resolver.
func (s *Service) answersAbout(ctx context.Context, name string) ([]ServerAnswer, error) {
	if s.Authoritative != nil {
		return s.Authoritative(ctx, name)
	}
	texts, err := s.DNS.TXT(ctx, name)
	if errors.Is(err, resolve.ErrNotFound) {
		texts, err = nil, nil
	}
	return []ServerAnswer{{Texts: texts}}, err
}

// judgeAnswers returns the sighting of a key. The key is seen if more than half of the servers answer, and all of those
// that answer show its record and no other. It is missing if one of them does not show it so.
func judgeAnswers(all []ServerAnswer, err error, record string) (s sighting) {
	if errors.Is(err, resolve.ErrNotFound) {
		return sighting{finding: absent}
	}
	answered, shown := 0, 0
	for _, a := range all {
		if a.Err != nil {
			continue
		}
		answered++
		s.ttl = max(s.ttl, a.TTL)
		if len(a.Texts) == 1 && verifiesLike(a.Texts[0], record) {
			shown++
		}
	}
	switch {
	case err != nil || answered == 0:
		s.finding = unknown
	case shown < answered:
		s.finding = absent
	case 2*answered > len(all):
		s.finding = present
	}
	return s
}

// verifiesLike reports whether verifiers find the same key in a DKIM record as in the wanted one. It is stricter than
// [dnstext.SameKey], because emails are signed with the key as soon as it is found.
func verifiesLike(text, want string) bool {
	tags := func(name, value string) bool {
		found, _ := dnstext.Tag(text, name)
		wanted, _ := dnstext.Tag(want, name)
		return cmp.Or(found, value) == cmp.Or(wanted, value)
	}
	return dnstext.Key(want) != "" && tags("p", "") && tags("k", "rsa") && tags("v", "DKIM1")
}
