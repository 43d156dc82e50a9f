%% @private
%% @doc How the native part is loaded, and why it is not there.
%%
%% `weir_nif' may be loaded again while there are sockets. A load that fails leaves the module that is there as it was; if
%% there is none, or one without a library, the new one stays without, and sockets are OTP's.
-module(weir_native).

-export([load/2]).
-export([load_error/0]).

-define(LOAD_ERROR, {weir_nif, load_error}).

%% How often a library was loaded.
-define(LOADS, {weir_nif, loads}).

%% @doc For `-on_load' of the module, which is `weir_nif': has it load the library with a fun of its own. The error ends the load.
-spec load(module(), fun((file:filename()) -> ok | {error, {atom(), string()}})) -> ok | {error, {atom(), string()}}.
load(Module, Load) ->
    Loads = persistent_term:get(?LOADS, 0),
    case load_library(Module, Load, Loads) of
        ok ->
            _ = persistent_term:erase(?LOAD_ERROR),
            persistent_term:put(?LOADS, Loads + 1);
        {error, Reason} ->
            case erlang:module_loaded(Module) andalso Module:available() of
                true -> {error, explained(Reason)};
                false -> persistent_term:put(?LOAD_ERROR, explained(Reason))
            end
    end.

load_library(Module, Load, Loads) ->
    case weir_library:file(weir, Module) of
        {ok, File} -> Load(renamed(File, Loads));
        {error, _} = Error -> Error
    end.

%% The C library takes a file whose name it knows for the one that it has loaded, although another may be there now. So
%% each load has another name for it.
renamed(File, Loads) ->
    filename:join(filename:dirname(File), lists:flatten(lists:duplicate(Loads, "./")) ++ filename:basename(File)).

%% The numbers are those of `native/src/nif/library.rs'.
explained({What, Text}) when What =:= upgrade; What =:= load ->
    Reasons = [
        {"(1)", "the VM refused its resource types"},
        {"(2)", "the sockets that are open have another layout than this library knows: restart the node to use it"},
        {"(3)", "it cannot be kept in memory"}
    ],
    case [Reason || {Number, Reason} <- Reasons, string:find(Text, Number) =/= nomatch] of
        [Reason] -> {What, Reason};
        [] -> {What, Text}
    end;
explained(Reason) ->
    Reason.

%% @doc Why the native part is not there, as {@link weir_library:file/2} or {@link erlang:load_nif/2} said.
-spec load_error() -> {atom(), string()} | undefined.
load_error() -> persistent_term:get(?LOAD_ERROR, undefined).
