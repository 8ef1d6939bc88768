package certs

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
)

const (
	challengesPath = "challenges" // of all challenges in progress, in the Storage
	httpPath       = "/.well-known/acme-challenge/"
	// challengeLimit is the time limit of a statement about a challenge. Cleaning up does not end with its request.
	challengeLimit = 10 * time.Second
)

// shared is a solver for HTTP-01 and TLS-ALPN-01. It puts challenges into the Storage, where every node finds them, so
// the authority may connect to any node.
type shared struct {
	storage *Storage
	kind    string
}

func (s shared) path(c acme.Challenge) string {
	if s.kind == acme.ChallengeTypeTLSALPN01 {
		return challengePath(s.kind, c.Identifier.Value)
	}
	return challengePath(s.kind, c.Token)
}

// challengePath returns the path of a challenge, which is found by its token (HTTP-01) or its host (TLS-ALPN-01).
func challengePath(kind, key string) string { return path.Join(challengesPath, kind, key) }

// Present implements acmez.Solver.
func (s shared) Present(ctx context.Context, c acme.Challenge) error {
	value, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode the challenge: %w", err)
	}
	return s.storage.Store(ctx, s.path(c), value)
}

// CleanUp implements acmez.Solver.
func (s shared) CleanUp(ctx context.Context, c acme.Challenge) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), challengeLimit)
	defer cancel()
	return s.storage.Delete(ctx, s.path(c))
}

// isALPNChallenge reports whether a handshake is the authority's connection for TLS-ALPN-01 (RFC 8737 section 3).
func isALPNChallenge(hello *tls.ClientHelloInfo) bool {
	return slices.Equal(hello.SupportedProtos, []string{acmez.ACMETLS1Protocol}) && hello.ServerName != ""
}

// alpnCertificate returns the certificate that answers a TLS-ALPN-01 challenge, which any node may have requested.
func (m *Manager) alpnCertificate(ctx context.Context, host string) (*tls.Certificate, error) {
	c, err := m.challenges.find(ctx, acme.ChallengeTypeTLSALPN01, host)
	if err != nil {
		return nil, fmt.Errorf("find the challenge for %s: %w", host, err)
	}
	return acmez.TLSALPN01ChallengeCert(c)
}

// ServeChallenge answers a request for an HTTP-01 challenge (RFC 8555 section 8.3), which any node may have requested.
// For all other requests, ServeChallenge returns false and does nothing.
func (m *Manager) ServeChallenge(w http.ResponseWriter, r *http.Request) bool {
	token, ok := strings.CutPrefix(r.URL.Path, httpPath)
	if !ok || m.acme == nil {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Use GET.", http.StatusMethodNotAllowed)
		return true
	}
	c, err := m.challenges.find(r.Context(), acme.ChallengeTypeHTTP01, token)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !strings.EqualFold(hostOf(r), c.Identifier.Value):
		http.Error(w, "There is no such challenge.", http.StatusNotFound)
	case err != nil:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "The challenge could not be read. Try again in a moment.", http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = io.WriteString(w, c.KeyAuthorization) // the authority repeats a request that failed
	}
	return true
}

// hostOf returns the host name of a request, without a port.
func hostOf(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		return host
	}
	return r.Host
}
