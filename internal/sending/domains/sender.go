package domains

import (
	"cmp"
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/platform/db"
)

// Sender returns the data needed to accept an email from the domain, or a fault that says why the email cannot be sent.
func (s *Service) Sender(ctx context.Context, teamID, name string) (Sender, error) {
	return look(s, s.senders, teamID+"\x00"+name, cacheFor,
		func() (Sender, error) { return s.sender(ctx, teamID, name) }, always)
}

func (s *Service) sender(ctx context.Context, teamID, name string) (Sender, error) {
	if s.IsSandbox(name) {
		d, err := s.sandbox(ctx, name)
		return Sender{DomainID: d.ID, Name: name, TLS: d.TLS, Sandbox: true, OwnerOnly: !s.c.SandboxSend}, err
	}
	d, err := domainByName(ctx, s.DB.Reader, teamID, name)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return Sender{}, fault.Forbiddenf("from",
			"The domain %s of the `from` field is not verified: this team has not added it. "+
				"Add and verify exactly this domain; a domain above or below it does not count.", name).
			Because(&RefusedSender{name, ErrNotAdded})
	case err != nil:
		return Sender{}, err
	case !d.Sending:
		return Sender{}, fault.Forbiddenf("from",
			"The domain %s of the `from` field is not enabled for sending. Enable its `sending` "+
				"capability.", name).Because(&RefusedSender{name, ErrSendingDisabled})
	case !d.MaySend():
		return Sender{}, fault.Forbiddenf("from",
			"The domain %s of the `from` field is not verified. Install its DNS records and "+
				"verify it.", name).Because(&RefusedSender{name, ErrNotVerified})
	}
	return Sender{DomainID: d.ID, Name: name, TLS: d.TLS, Tracking: s.c.Tracking(&d)}, nil
}

// sandbox returns the system's domain with the given sandbox name; its keys sign emails from sandbox senders. The first
// call creates the domain, in a transaction without the request's audit entry and idempotency key. The request has not
// had its effect yet, and may still be refused.
func (s *Service) sandbox(ctx context.Context, name string) (Domain, error) {
	d, err := domainByName(ctx, s.DB.Reader, system, name)
	if err == nil || fault.KindOf(err) != fault.NotFound {
		return d, err
	}
	d = Domain{ID: id.New(), TeamID: system, Name: name, Region: regions[0], ReturnPath: "send", TLS: Opportunistic,
		Sending:   true,
		CreatedAt: s.DB.Now()}
	if err := s.newKeys(&d); err != nil {
		return d, err
	}
	d = judge(d, s.foundAll(&d), d.CreatedAt)
	err = s.DB.Update(db.WithoutAddition(ctx), func(tx *db.Tx) error {
		insertDomain(ctx, tx, &d)
		_, err := s.registerNames(ctx, tx, &d)
		return err
	})
	if s.DB.Violates(err, nameIndex) { // another request created the domain first
		return domainByName(ctx, s.DB.Reader, system, name)
	}
	return d, err
}

// Signing returns the data needed to deliver an email from the domain, or a NotFound fault if the domain was deleted.
//
// Decrypting and parsing keys is slow, so signing data is cached for 30 seconds. A change to the domain clears the
// cache immediately. The data of a domain that may not send is not cached, so that emails go on as soon as it may send
// again.
func (s *Service) Signing(ctx context.Context, domainID string) (Signing, error) {
	return look(s, s.signing, domainID, 30*cacheFor,
		func() (Signing, error) { return s.lookUpSigning(ctx, domainID) }, func(g Signing) bool { return g.MaySend })
}

func (s *Service) lookUpSigning(ctx context.Context, domainID string) (Signing, error) {
	d, err := domainByID(ctx, s.DB.Reader, domainID)
	if err != nil {
		return Signing{}, err
	}
	g := Signing{Name: d.Name, ReturnPathHost: d.returnPathHost(), TLS: d.TLS, Tracking: s.c.Tracking(&d),
		MaySend: d.MaySend()}
	setup := cmp.Or(d.sendingSetup(), d.setup())
	rsa, ed25519 := s.c.selectorsIn(setup, &d)
	for _, k := range []struct {
		signs    bool
		selector string
		row      keyRow
	}{{true, rsa, d.rsa}, {d.signsEd25519(setup), ed25519, d.ed25519}} {
		if !k.signs {
			continue
		}
		der, err := s.Keys.Open(sealPurpose, k.row.sealed, []byte(d.ID))
		if err != nil {
			return g, fmt.Errorf("open the DKIM key of %s (was the secret key changed?): %w", d.Name, err)
		}
		key, err := dkim.ParseKey(der)
		if err != nil {
			return g, fmt.Errorf("read the DKIM key of %s: %w", d.Name, err)
		}
		g.Signers = append(g.Signers, dkim.Signer{Domain: d.Name, Selector: k.selector, Key: key})
	}
	return g, nil
}

// signsEd25519 reports whether the Ed25519 key signs: its record must be published. The RSA key always signs, because
// sending requires its record.
func (d *Domain) signsEd25519(setup string) bool {
	switch setup {
	case SetupDelegation:
		return d.Served()
	case SetupRecords:
		return d.checks["dkim-ed25519"].Status == Verified
	}
	return false
}
