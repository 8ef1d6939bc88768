package certs

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/caddyserver/certmagic"
	"golang.org/x/sync/errgroup"
)

// Run requests missing certificates of the installation's hosts until ctx ends, once a minute and after each reload of
// the operator's files. It creates the next keys of mail hosts and completes changes of keys. It also deletes old data,
// and repeats warnings about the operator's certificate once a day.
// The library renews certificates meanwhile. Run closes the Manager.
func (m *Manager) Run(ctx context.Context) error {
	defer m.Close()
	if m.acme != nil {
		if err := m.storage.soonen(ctx, m.names, soonAfterStart); err != nil && ctx.Err() == nil {
			m.o.Log.Warn("the next requests for certificates were not moved forward", "error", err)
		}
	}
	tick := time.NewTicker(manageEvery)
	defer tick.Stop()
	cleaned, complained := time.Time{}, time.Now()
	for {
		if m.acme != nil {
			m.manage(ctx)
			m.reloadStored(ctx)
			m.manageKeys(ctx)
			if time.Since(cleaned) >= cleanEvery {
				m.clean(ctx)
				cleaned = time.Now()
			}
		}
		if m.files != nil && time.Since(complained) >= cleanEvery {
			m.complain(m.files.get().Leaf)
			complained = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.reloaded: // hosts that the operator's certificate covered may need one now
		case <-tick.C:
		}
	}
}

// manage loads or requests the certificates of the installation's hosts that are not in memory. Hosts that the
// operator's certificate covers need none.
func (m *Manager) manage(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(requestsMax)
	for _, name := range m.names {
		if m.fromFiles(name) != nil || len(m.ownCache.AllMatchingCertificates(name)) > 0 {
			continue
		}
		g.Go(func() error {
			m.manageOne(ctx, name)
			return nil
		})
	}
	_ = g.Wait() // no error; each host logs its own
}

// manageOne loads the certificate of a host, or requests it if it is time to.
func (m *Manager) manageOne(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	f, err := m.storage.failureOf(ctx, name)
	switch {
	case err != nil:
	case f.retryAt.After(m.o.DB.Now()):
		// There may be a certificate whose renewal failed, or another node may just have obtained one.
		if _, err = m.configOf(name).CacheManagedCertificate(ctx, name); errors.Is(err, fs.ErrNotExist) {
			return
		}
	default:
		err = m.configOf(name).ManageSync(ctx, []string{name})
	}
	// The library has logged errors of requests.
	if _, ok := errors.AsType[certmagic.ErrNoRetry](err); err != nil && !ok && !errors.Is(ctx.Err(), context.Canceled) {
		m.o.Log.Error("the certificate of a host is missing; the next attempt follows in a minute", "host", name,
			"error", err)
	}
}

// clean deletes expired certificates, challenges whose node was killed, and old failures.
func (m *Manager) clean(ctx context.Context) {
	err := certmagic.CleanStorage(ctx, m.storage, certmagic.CleanStorageOptions{Logger: m.own.Logger,
		Interval: cleanEvery / 2, OCSPStaples: true, ExpiredCerts: true, ExpiredCertGracePeriod: keepExpired})
	err = errors.Join(err, m.storage.removeOld(ctx, challengesPath, m.o.DB.Now().Add(-cleanEvery)))
	if err != nil && ctx.Err() == nil {
		m.o.Log.Warn("old certificates were not deleted", "error", err)
	}
}
