package telemetry

import "time"

// readSources registers the metrics that are read from the state of the node.
func (m *Metrics) readSources(s Sources) {
	m.sample("postrider_build_info", "gauge", func(add emit) { add(1, s.Version) })
	m.sample("postrider_connections_open", "gauge", func(add emit) {
		add(float64(m.connections.Load()), "http")
		if s.Connections != nil {
			addAll(add, s.Connections())
		}
	})
	if s.Relays != nil {
		m.sample("postrider_relay_resting", "gauge", func(add emit) {
			for name, rests := range s.Relays() {
				value := 0.0
				if rests {
					value = 1
				}
				add(value, name)
			}
		})
	}
	if s.SecureLookUps != nil {
		m.sample("postrider_secure_lookups_total", "counter", func(add emit) { addAll(add, s.SecureLookUps()) })
	}
	m.readZones(s)
	if s.Pauses != nil {
		m.sample("postrider_destinations_paused", "gauge", func(add emit) {
			destinations, _ := s.Pauses()
			add(float64(destinations))
		})
		m.sample("postrider_mail_hosts_failing", "gauge", func(add emit) {
			_, hosts := s.Pauses()
			add(float64(hosts))
		})
	}
	if s.RunningJobs != nil {
		m.sample("postrider_jobs_running", "gauge", func(add emit) { addAll(add, s.RunningJobs()) })
	}
	if s.BlobErrors != nil {
		m.sample("postrider_blob_errors_total", "counter", func(add emit) { addAll(add, s.BlobErrors()) })
	}
	if s.Disks != nil {
		m.sample("postrider_disk_free_bytes", "gauge", func(add emit) {
			for _, d := range s.Disks() {
				add(float64(d.Free), d.Folder)
			}
		})
		m.sample("postrider_disk_size_bytes", "gauge", func(add emit) {
			for _, d := range s.Disks() {
				add(float64(d.Size), d.Folder)
			}
		})
	}
	if s.Clock != nil {
		m.sample("postrider_clock_offset_seconds", "gauge", func(add emit) {
			if offset, ok := s.Clock(); ok {
				add(offset.Seconds())
			}
		})
	}
	if s.Expiries != nil {
		m.sample("postrider_certificate_expiry_timestamp_seconds", "gauge", func(add emit) {
			first := map[string]time.Time{}
			for _, c := range s.Expiries() {
				if old, ok := first[c.Source]; !ok || c.NotAfter.Before(old) {
					first[c.Source] = c.NotAfter
				}
			}
			for source, at := range first {
				add(seconds(at), source)
			}
		})
	}
	if s.MissingCertificates != nil {
		m.sample("postrider_certificates_missing", "gauge", func(add emit) {
			if n, ok := s.MissingCertificates(); ok {
				add(float64(n))
			}
		})
	}
	if s.Health != nil {
		m.sample("postrider_check_ok", "gauge", func(add emit) {
			for _, c := range s.Health.Last() {
				ok := 1.0
				if c.Status != StatusOK {
					ok = 0
				}
				add(ok, c.Name)
			}
		})
	}
}

// Zones is the state of the name server's zones.
type Zones struct {
	Number               int
	BadZones, BadRecords int       // those that are left out because they are invalid
	ReadAt               time.Time // zero if they were never read
}

// readZones registers the metrics of the name server's zones.
func (m *Metrics) readZones(s Sources) {
	if s.Zones == nil {
		return
	}
	m.sample("postrider_dns_zones", "gauge", func(add emit) {
		if z, ok := s.Zones(); ok {
			add(float64(z.Number))
		}
	})
	m.sample("postrider_dns_invalid", "gauge", func(add emit) {
		if z, ok := s.Zones(); ok {
			add(float64(z.BadZones), "zone")
			add(float64(z.BadRecords), "record")
		}
	})
	m.sample("postrider_dns_zones_read_timestamp_seconds", "gauge", func(add emit) {
		if z, ok := s.Zones(); ok && !z.ReadAt.IsZero() {
			add(seconds(z.ReadAt))
		}
	})
}

// readInstallation registers the metrics of the installation. Before the first measurement, they have no values.
func (m *Metrics) readInstallation() {
	gauge := func(name string, read func(i *Installation, add emit)) {
		m.sample(installationPrefix+name, "gauge", func(add emit) {
			if i := m.installation.Load(); i != nil {
				read(i, add)
			}
		})
	}
	gauge("queue_jobs", func(i *Installation, add emit) {
		for _, class := range Classes {
			add(float64(i.Queue[class].Due), class, "due")
			add(float64(i.Queue[class].Later), class, "later")
		}
	})
	gauge("queue_oldest_due_seconds", func(i *Installation, add emit) {
		for _, class := range Classes {
			add(i.Queue[class].Oldest.Seconds(), class)
		}
	})
	gauge("webhook_jobs", func(i *Installation, add emit) {
		add(float64(i.Webhooks.Due), "due")
		add(float64(i.Webhooks.Later), "later")
	})
	gauge("webhook_oldest_due_seconds", func(i *Installation, add emit) { add(i.Webhooks.Oldest.Seconds()) })
	gauge("jobs_parked", func(i *Installation, add emit) { addAll(add, i.Parked) })
	gauge("broadcasts", func(i *Installation, add emit) {
		add(float64(i.Sending), "sending")
		add(float64(i.Paused), "paused")
	})
	gauge("last_backup_timestamp_seconds", func(i *Installation, add emit) {
		if !i.LastBackup.IsZero() {
			add(seconds(i.LastBackup))
		}
	})
	gauge("created_timestamp_seconds", func(i *Installation, add emit) {
		if !i.Created.IsZero() {
			add(seconds(i.Created))
		}
	})
	gauge("measured_timestamp_seconds", func(i *Installation, add emit) { add(seconds(i.At)) })
}

func addAll(add emit, all map[string]int64) {
	for label, n := range all {
		add(float64(n), label)
	}
}

// seconds returns a time in seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
