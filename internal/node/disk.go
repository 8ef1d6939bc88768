package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/telemetry"
)

const (
	// diskFull is the free space in bytes below which a disk counts as full. The rest is needed for the outcomes of
	// deliveries that are in progress.
	diskFull = 32 << 20
	// diskLow is the part of a disk that must be free.
	diskLow = 0.1
)

// disks measures the free space of the node's folders.
type disks struct {
	folders  []diskFolder
	measured atomic.Pointer[[]telemetry.Disk]
}

// diskFolder is a folder whose disk must not fill up. The folder of blobs does not exist before the node has opened it.
type diskFolder struct{ setting, path string }

// diskFolders returns data_dir, and the folder of the blobs if they are in a folder.
func diskFolders(c config.Config) []diskFolder {
	all := []diskFolder{{"data_dir", c.DataDir}}
	path := c.BlobURL
	if u, err := url.Parse(c.BlobURL); err == nil && u.Scheme == "file" {
		path = u.Path
	}
	if !strings.Contains(path, "://") {
		all = append(all, diskFolder{"blob_url", path})
	}
	return all
}

// measure reads the free space of each disk. Folders on the same disk are listed once.
func (d *disks) measure() ([]telemetry.Disk, error) {
	var all []telemetry.Disk
	seen := map[uint64]bool{}
	var failed error
	for _, f := range d.folders {
		var s syscall.Statfs_t
		var at syscall.Stat_t
		if err := errors.Join(syscall.Stat(f.path, &at), syscall.Statfs(f.path, &s)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("measure the disk of %s: %w", f.setting, err))
			continue
		}
		if seen[uint64(at.Dev)] {
			continue
		}
		seen[uint64(at.Dev)] = true
		block := uint64(s.Bsize)
		all = append(all, telemetry.Disk{Folder: f.setting, Free: s.Bavail * block, Size: s.Blocks * block})
	}
	d.measured.Store(&all)
	return all, failed
}

// last returns the result of the last measurement.
func (d *disks) last() []telemetry.Disk {
	if all := d.measured.Load(); all != nil {
		return *all
	}
	return nil
}

// checkFull returns an error if the disk of data_dir is full.
func (d *disks) checkFull() error {
	all, err := d.measure()
	for _, x := range all {
		if x.Folder == "data_dir" && x.Free < diskFull {
			return errors.New("the disk of data_dir is full")
		}
	}
	if err != nil && len(all) == 0 {
		return errors.New("the disk of data_dir cannot be measured")
	}
	return nil
}

// checkSpace returns an error if a disk is nearly full.
func (d *disks) checkSpace() error {
	all, err := d.measure()
	for _, x := range all {
		if isLow(x) {
			return fmt.Errorf("less than %.0f %% of the disk of %s is free", diskLow*100, x.Folder)
		}
	}
	if err != nil {
		return errors.New("the disk of a folder cannot be measured")
	}
	return nil
}

func isLow(d telemetry.Disk) bool { return float64(d.Free) < diskLow*float64(d.Size) }

// checkDNS returns an error if the node's own resolvers do not answer. An answer that the name does not exist is one.
func (n *Node) checkDNS(ctx context.Context) error {
	if _, err := n.DNS.Addrs(ctx, n.Config.Hostname); fault.IsOutage(err) {
		return errors.New("the DNS resolvers do not answer, so emails wait")
	}
	return nil
}
