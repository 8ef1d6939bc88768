package api

import (
	"context"

	"github.com/postrider/postrider/internal/audience/contacts"
)

type createTopicIn struct {
	Name                string `json:"name" maxLength:"50" example:"Product news"`
	DefaultSubscription string `json:"default_subscription" enum:"opt_in,opt_out" doc:"Of contacts that have chosen neither; it never changes."`
	Description         string `json:"description,omitzero" maxLength:"200"`
	Visibility          string `json:"visibility,omitzero" enum:"public,private" default:"private" doc:"Who sees it on the pages of unsubscribe links: everybody, or those who are opted in."`
}

type updateTopicIn struct {
	Name        *string     `json:"name,omitzero" nullable:"false" maxLength:"50"`
	Description opt[string] `json:"description,omitzero" doc:"Null removes it." maxLength:"200"`
	Visibility  *string     `json:"visibility,omitzero" nullable:"false" enum:"public,private"`

	DefaultSubscription fixed[string] `json:"default_subscription,omitzero" hidden:"true"`
}

type topicWire struct {
	Object string `json:"object"`
	TopicItem
}

// TopicItem is a topic in a list. It is exported because Huma overlooks the fields of embedded types that are not.
type TopicItem struct {
	ID                  string `json:"id"`
	Name                string `json:"name"`
	Description         string `json:"description"`
	DefaultSubscription string `json:"default_subscription" enum:"opt_in,opt_out"`
	Visibility          string `json:"visibility" enum:"public,private"`
	CreatedAt           dbTime `json:"created_at"`
}

func topicToItem(t contacts.Topic) TopicItem {
	return TopicItem{t.ID, t.Name, t.Description, string(t.Default), string(t.Visibility), dbTime(t.CreatedAt)}
}

func (a *API) createTopic(ctx context.Context, c *Call, in createTopicIn) (ref, error) {
	t, err := a.Services.Contacts.CreateTopic(ctx, c.TeamID, contacts.NewTopic{Name: in.Name,
		Description: in.Description, Default: contacts.Subscription(in.DefaultSubscription),
		Visibility: contacts.Visibility(in.Visibility)})
	return ref{"topic", t.ID}, err
}

func (a *API) listTopics(ctx context.Context, c *Call, _ none) (list[TopicItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return list[TopicItem]{}, err
	}
	all, more, err := a.Services.Contacts.Topics(ctx, c.TeamID, p)
	return listOf(all, more, topicToItem), err
}

func (a *API) getTopic(ctx context.Context, c *Call, _ none) (topicWire, error) {
	id, err := c.ID("topic_id")
	if err != nil {
		return topicWire{}, err
	}
	t, err := a.Services.Contacts.Topic(ctx, c.TeamID, id)
	return topicWire{"topic", topicToItem(t)}, err
}

func (a *API) updateTopic(ctx context.Context, c *Call, in updateTopicIn) (ref, error) {
	id, err := c.ID("topic_id")
	if err != nil {
		return ref{}, err
	}
	if in.DefaultSubscription.given() {
		t, err := a.Services.Contacts.Topic(ctx, c.TeamID, id)
		if err == nil {
			err = in.DefaultSubscription.is("default_subscription", string(t.Default))
		}
		if err != nil {
			return ref{}, err
		}
	}
	change := contacts.TopicChange{Name: in.Name, Description: in.Description.orClear(),
		Visibility: (*contacts.Visibility)(in.Visibility)}
	t, err := a.Services.Contacts.UpdateTopic(ctx, c.TeamID, id, change)
	return ref{"topic", t.ID}, err
}

func (a *API) deleteTopic(ctx context.Context, c *Call, _ none) (gone, error) {
	id, err := c.ID("topic_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"topic", id, true}, a.Services.Contacts.DeleteTopic(ctx, c.TeamID, id)
}
