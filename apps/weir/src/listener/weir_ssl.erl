%% @private
%% @doc OTP's `ssl' and `public_key', which are optional dependencies.
%%
%% A module name returned by a remote call is unknown to the compiler, so a release without them gets no warnings of
%% undefined functions.
-module(weir_ssl).

-export([ssl/0]).
-export([public_key/0]).

-spec ssl() -> module().
ssl() -> ssl.

-spec public_key() -> module().
public_key() -> public_key.
