package node

import (
	"errors"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/config"
)

// settings returns the settings of the node, with the live ones as of the last reload.
func (n *Node) settings() *config.Config {
	if c := n.live.Load(); c != nil {
		return c
	}
	return &n.Config
}

// Reload takes over the live settings of c, reads the file of destinations again, and logs what has changed. It may be
// called while the node runs. If the live settings of c do not fit the other settings of the running node, or lack a
// relay that a destination needs, Reload takes over nothing and returns an error. Settings that need a restart are only
// named in the log.
func (n *Node) Reload(c config.Config) error {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	before := *n.settings()
	live, restart := config.Changes(before, c)
	next, err := config.TakeLive(before, c)
	if err != nil {
		if len(restart) > 0 {
			err = errors.Join(err, errors.New("these settings need a restart first: "+strings.Join(restart, ", ")))
		}
		return err
	}
	read := readDestinations(next)
	if err := n.destinations.fits(read, next); err != nil {
		return err
	}
	n.live.Store(&next)
	if n.o.LogLevel != nil {
		n.o.LogLevel.Set(next.LogLevel)
	}
	n.Guard.SetNetworks(networks(next))
	n.strangers.SetNetworks(publicNetworks(next))
	n.limits.SetDefault(next.RateLimit)
	n.Audit.SetRetention(next.AuditRetention)
	n.Imports.SetRetention(next.ImportRetention)
	n.Domains.SetRetrySpan(retrySpan(next))
	n.Teams.SetTrial(teams.Quota{Daily: int64(next.TrialDaily), Monthly: int64(next.TrialMonthly)})
	n.Alarms.SetReceivers(receivers(next))
	n.metrics.SetRelays(relayNames(next))
	n.renewDestinations(read)
	n.Delivery.Apply(n.deliveryRoutes())
	n.Log.Info("the settings were read again", "changed", strings.Join(live, ", "))
	n.warnOfExposedFiles(next)
	if len(restart) > 0 {
		n.Log.Warn("these settings have changed and need a restart", "settings", strings.Join(restart, ", "))
	}
	return nil
}
