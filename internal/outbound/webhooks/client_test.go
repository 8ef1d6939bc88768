package webhooks

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/netguard"
)

// A team's connections to an address are counted across ports and host names. New connections replace idle connections,
// but not connections that are in use. Each team has its own limit on connections to an address.
func TestConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	client := newClient(netguard.New(netguard.Options{AllowLoopback: true}), timeout)
	release := make(chan struct{})
	in := make(chan struct{}, perAddress)
	serve := func(secure bool, gated bool) string {
		h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if gated {
				in <- struct{}{}
				<-release
			}
		})
		s := httptest.NewUnstartedServer(h)
		if secure {
			s.StartTLS()
			client.Transport.(*http.Transport).TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return s.URL
	}
	get := func(team, url string) error {
		r, err := http.NewRequestWithContext(forTeam(context.Background(), team), http.MethodPost, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	busy := []string{serve(true, true), serve(false, true)}
	other := serve(false, false)
	var all sync.WaitGroup
	for i := range perAddress {
		all.Go(func() {
			if err := get("a", busy[i%2]); err != nil {
				t.Error(err)
			}
		})
	}
	for range perAddress {
		<-in
	}
	if err := get("a", other); !errors.Is(err, errCrowded) {
		t.Errorf("while all connections are in use: %v", err)
	}
	if err := get("b", other); err != nil {
		t.Errorf("another team: %v", err)
	}
	close(release)
	all.Wait()
	more := []string{serve(false, false), serve(false, false), other}
	for _, url := range more {
		if err := get("a", url); err != nil {
			t.Errorf("when all idle: %v", err)
		}
	}
}
