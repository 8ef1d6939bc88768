package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
)

// hangups collects the signals SIGHUP. Without it, the signal would end the process.
type hangups chan os.Signal

// catchHangups collects signals until stop is called. A node calls it before it opens, which may take long, and reads
// its settings again once it is open if a signal has come meanwhile.
func catchHangups() hangups {
	h := make(hangups, 1)
	signal.Notify(h, syscall.SIGHUP)
	return h
}

// stop makes the signal end the process again.
func (h hangups) stop() { signal.Stop(h) }

// reload makes the node read its settings again for each signal, until the returned function is called. If the settings
// are invalid, the node keeps those that it has.
func (h hangups) reload(n *node.Node, load func() (config.Config, error)) (stop func()) {
	var running sync.WaitGroup
	done := make(chan struct{})
	running.Go(func() {
		for {
			select {
			case <-h:
				reload(n, load)
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}

func reload(n *node.Node, load func() (config.Config, error)) {
	c, err := load()
	if err == nil {
		err = n.Reload(c)
	}
	if err != nil {
		n.Log.Error("the settings were not read again; the node keeps those that it has", "error", err)
	}
}
